"""What stands between the network and the application.

limits       every figure that bounds a caller: sizes, times, connections, rates
front        what the whole server shares: its phase, the rates, the connections by token, the metrics
hosts        which names a request may be sent to
connection   one connection: deadlines, framing, what is refused before a request exists
stopping     the server: it starts, and stops in order
holder       one server per log
"""
