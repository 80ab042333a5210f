"""Plain-Python twin of ``lengthwise.core.order``: lists, exact fractions for ranking, no numpy."""

from collections import defaultdict
from fractions import Fraction

from lengthwise.core.random import derive_key
from support.twins_random import mix, shuffled


def arrange(tokens, sizes, costs, bucket_ids, *, rule, key):
    """The same permutation as the subject, built the slow way."""
    replicas = rule.num_replicas
    per_unit = 1 if rule.balance == "none" else replicas
    per_step = replicas * rule.accumulation_steps // per_unit
    units = cut_units(costs, bucket_ids, rule.balance, per_unit, key)
    steps, rest = choose_steps(units, tokens, sizes, rule.order, per_step, key)
    result = lay_out(steps, costs, rule, derive_key(key, 1))
    if rest:
        result += lay_out([rest], costs, rule, derive_key(key, 2))
    return result


def cut_units(costs, bucket_ids, balance, per_unit, key):
    batches = shuffled(range(len(costs)), derive_key(key, 0))
    if per_unit == 1:
        return [[batch] for batch in batches]
    if balance == "cost":
        batches.sort(key=lambda batch: costs[batch])
    else:
        groups, left = defaultdict(list), []
        for batch in batches:
            groups[bucket_ids[batch]].append(batch)
        batches = []
        for bucket in sorted(groups):
            whole = len(groups[bucket]) // per_unit * per_unit
            batches += groups[bucket][:whole]
            left += groups[bucket][whole:]
        batches += left
    units = [batches[i : i + per_unit] for i in range(0, len(batches), per_unit)]
    return [units[place] for place in shuffled(range(len(units)), derive_key(key, 1))]


def choose_steps(units, tokens, sizes, order, per_step, key):
    num_steps = len(units) // per_step
    used, rest = units[: num_steps * per_step], units[num_steps * per_step :]
    if order == "shuffled" or per_step == 1 or not num_steps:
        return [used[i * per_step : (i + 1) * per_step] for i in range(num_steps)], rest

    def mean(unit):
        return Fraction(sum(tokens[b] for b in unit), sum(sizes[b] for b in unit))

    ranked = sorted(used, key=mean)
    strata = []
    for number in range(per_step):
        stratum = ranked[number * num_steps : (number + 1) * num_steps]
        strata.append(shuffled(stratum, mix(derive_key(key, 2), number)))
    if order == "balanced":
        overall = sum(tokens) / sum(sizes)

        def deviation(unit):
            return sum(tokens[b] for b in unit) - overall * sum(sizes[b] for b in unit)

        rematch(strata, deviation)
        places = shuffled(range(num_steps), derive_key(key, 3))
        strata = [[stratum[place] for place in places] for stratum in strata]
    return [list(step) for step in zip(*strata, strict=True)], rest


def rematch(strata, deviation):
    """Two sweeps: each stratum in turn is matched anew, largest against smallest."""
    totals = [0.0] * len(strata[0])
    for stratum in strata:
        totals = [total + deviation(unit) for total, unit in zip(totals, stratum, strict=True)]
    falling = []
    for stratum in strata:
        places = rising([-deviation(unit) for unit in stratum])
        falling.append([stratum[place] for place in places])
    for _ in range(2):
        for stratum, units in zip(strata, falling, strict=True):
            totals = [total - deviation(unit) for total, unit in zip(totals, stratum, strict=True)]
            for step, unit in zip(rising(totals), units, strict=True):
                stratum[step] = unit
                totals[step] += deviation(unit)


def rising(values):
    """Places by value, where values are told apart in 2**32 - 1 parts of their range."""
    low, spread = min(values), max(values) - min(values)
    if not spread:
        return list(range(len(values)))
    scale = (2.0**32 - 1) / spread
    return sorted(range(len(values)), key=lambda place: int((values[place] - low) * scale))


def lay_out(steps, costs, rule, key):
    """Micro-steps of like cost, in random order, each on random replicas."""
    replicas = rule.num_replicas
    all_rows, rows_of_step = [], []
    for units in steps:
        rows = [list(unit) for unit in units]
        if rule.balance == "none":
            batches = [batch for unit in units for batch in unit]
            if len(batches) > replicas:
                batches.sort(key=lambda batch: costs[batch])
            rows = [batches[i : i + replicas] for i in range(0, len(batches), replicas)]
        rows_of_step.append(range(len(all_rows), len(all_rows) + len(rows)))
        all_rows += rows
    all_rows = [
        shuffled(row, mix(derive_key(key, 5), number)) for number, row in enumerate(all_rows)
    ]
    result = []
    for number, places in enumerate(rows_of_step):
        for place in shuffled(places, mix(derive_key(key, 4), number)):
            result += all_rows[place]
    return result
