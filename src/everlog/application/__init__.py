"""What people do with a log, independent of any surface: no module here knows a command line or a server.

folder/            the `.everlog` folder: create it, open its log, its settings and its event types
events/            write drafts, find an event, list what purges left, go back in time
views/             the states of views, and their snapshots
checks/            doctor, the problems that verify finds, and the report of a defect
consumer_groups    look after groups of consumers
move_log           copy, upgrade, export and import, and let git merge
lake, store_files  the files that a log has beside its events
"""
