"""One run in many processes: the data divided among them, or one mesh over all of their devices.

Here what needs nothing heavy; a sweep in many processes is `hosts.running.run`.
"""

from spec_cascades.hosts.gathering import Lost, lead, share, together
from spec_cascades.hosts.joining import Join, join

__all__ = ["Join", "Lost", "join", "lead", "share", "together"]
