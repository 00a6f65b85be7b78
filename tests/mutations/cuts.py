"""What tests/torture/cuts.py must notice: the power goes at each call of the daemons as they ship."""

# what, file, the line, what it becomes, the test
MUTANTS = [
    ('the opening of the storage does not sync what it finds', 'src/fence/db.c', '    rc = rc != 0 ? rc : make_durable(o);\n', '    (void)make_durable;\n', 'store_keeps'),
    ('a commit of the storage does not sync', 'src/fence/db.c', '{"synchronous", "2", false}', '{"synchronous", "1", false}', 'store_again'),
    ('the identity file is not synced before it is named', 'src/base/part.c', 'rc == 0 && fsync(fd) != 0 ? FL_EIO : rc', 'rc == 0 && fd < 0 ? FL_EIO : rc',
     'node_forming'),
    ('a write of the log does not sync itself', 'src/log/device_files.c', 'io->offset, RWF_DSYNC);', 'io->offset, 0);', 'node_again'),
]
