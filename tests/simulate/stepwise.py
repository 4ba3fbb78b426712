"""The same fleet in the plainest way: every step of every server is an event, nothing is skipped."""

import numpy as np


def serve(arrivals, works, seconds, kinds, servers, slots):
    """(joined, first, finished) [n]; the routing of `spec_cascades.simulate.queue`."""
    n = len(arrivals)
    joined, first, finished = np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan)
    rows = [[] for _ in range(servers)]  # [request, part, steps left in it]
    joining, ends = [[] for _ in range(servers)], [np.inf] * servers
    line, todo = [], list(range(n))

    def begin(s, now):
        for i in joining[s]:
            joined[i] = now
            rows[s].append([i, 0, works[i].counts[0]])
        joining[s] = []
        counts = [0] * kinds
        for i, part, _ in rows[s]:
            counts[works[i].kinds[part]] += 1
        ends[s] = now + seconds(tuple(counts)) if rows[s] else np.inf

    def step(s):
        now = ends[s]
        for row in list(rows[s]):
            i = row[0]
            row[2] -= 1
            if row[2]:
                continue
            if row[1] == works[i].shown:
                first[i] = now
            if row[1] + 1 < len(works[i].counts):
                row[1], row[2] = row[1] + 1, works[i].counts[row[1] + 1]
                continue
            finished[i] = now
            rows[s].remove(row)
            if line:
                joining[s].append(line.pop(0))
        begin(s, now)

    while todo or min(ends) < np.inf:
        s = int(np.argmin(ends))
        if todo and arrivals[todo[0]] < ends[s]:
            i = todo.pop(0)
            loads = [len(rows[s]) + len(joining[s]) for s in range(servers)]
            s = int(np.argmin(loads))
            if loads[s] == slots:
                line.append(i)
                continue
            joining[s].append(i)
            if loads[s] == 0:
                begin(s, arrivals[i])
        else:
            step(s)
    return joined, first, finished
