"""One run in many processes: the data divided among them, or one mesh over all of their devices."""

from spec_cascades.hosts.gathering import Lost, lead, share, together
from spec_cascades.hosts.joining import Join, join
from spec_cascades.hosts.running import refuse_copies, run

__all__ = ["Join", "Lost", "join", "lead", "refuse_copies", "run", "share", "together"]
