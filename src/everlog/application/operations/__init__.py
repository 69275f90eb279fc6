"""The operations of the log itself as values, and the list of all operations, for every surface.

from everlog.application.operations.registry import operations, tools

for operation in operations():
    mount(operation.name, operation.policy, operation.schema, operation.call)
"""
