"""Copies of one log that find every difference and agree: see docs/how-to/nodes/sync.md.

holdings    what a log has: chains, numbers, hashes, read once and then only what is new
heads       what a node reports, and what follows from comparing two reports
ranges      negentropy, protocol version 1: the differences of two sets, whatever their chains look like
wire        the shapes and limits of everything that travels
exchange    the requests of a node and the answers of its peer, as functions of bytes
intake      what becomes of events that a peer sent
carriers    HTTP, files and folders, which move the bytes
"""
