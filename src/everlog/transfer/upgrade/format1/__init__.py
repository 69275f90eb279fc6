"""Read a log in format 1, in whichever store it is.

These readers are frozen. They know the bytes that format 1 had and share no code with the stores, which change with
the format. They never write.
"""
