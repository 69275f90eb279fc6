"""The server: one log, or several, as a service over HTTP.

route        what a route is: its policy, its query and body, its answers, the problems it may report
table        all routes, in one list: the app, the OpenAPI document and docs/reference/http.md follow from it
app          finds the route of a request, checks limits and rights, and answers
events       append, get
pages        GET /v1/events: a page, at once or waited for, or all of them as lines
streaming    GET /v1/events/stream: Server-Sent Events, whose form is in `frames`
reading      what one caller reads: pages, resets and the head, the same for all of these
hub          who waits for the log to grow, and the one reader that reads its end for all of them
sending      the body of an answer while it is sent
operations   every command and question of the programs and of the log: /v1/do and /v1/ask
auth         who calls: tokens
serve        listens, and stops in order
"""
