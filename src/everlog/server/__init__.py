"""The server: one log, or several, as a service over HTTP.

route        what a route is: its policy, its query and body, its answers, the problems it may report
table        all routes, in one list: the app, the OpenAPI document and docs/http.md follow from it
app          finds the route of a request, checks limits and rights, and answers
events       append, page, get
operations   every command and question of the programs and of the log: /v1/do and /v1/ask
auth         who calls: tokens
serve        listens, and stops in order
"""
