"""A log behind a server, with the interface of a log in this process.

address         the URL of a server, and the token that is sent to it
calls           every request and its answer, as values: nothing here moves bytes
retry           which failures are tried again, and when
server_sent     server-sent events, piece by piece
following       where a subscription is, whatever carries its events
http            moves bytes, for threads
log             `everlog.connect`: the log, for threads
http_async      moves bytes, for asyncio
log_async       `everlog.aio.connect`: the log, for asyncio
"""
