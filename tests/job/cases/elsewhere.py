"""A peer on another machine."""

import socket

from network_peer import ADDRESS, ask
from training import Trainer


def remote_peer(run):
    """Features from another machine; the fault: it takes 80 ms longer to answer."""
    trainer = Trainer(run.open(), 60)
    connection = socket.create_connection(ADDRESS)
    delay = 80 if run.fault else 0

    def step():
        ask(connection, delay)
        trainer.step()

    run.loop(step)


CASES = {"remote-peer": remote_peer}
