"""The default schedulers of a coordinator, in the order in which they are called.

The order is that of TiCDC's scheduler v3, with even and split added. An operator's move is started when requested.
"""

from typing import Final

from headgate.coordinator.schedulers.balance import BALANCE
from headgate.coordinator.schedulers.basic import BASIC
from headgate.coordinator.schedulers.contract import Scheduler
from headgate.coordinator.schedulers.drain import DRAIN
from headgate.coordinator.schedulers.even import EVEN
from headgate.coordinator.schedulers.rebalance import REBALANCE
from headgate.coordinator.schedulers.split import SPLIT

STANDARD: Final[tuple[Scheduler, ...]] = (BASIC, DRAIN, REBALANCE, EVEN, SPLIT, BALANCE)
