"""The pages of an experiment by name."""

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m\"'`=1+1"
"""Markup, an override of the writing direction, an escape sequence and a formula in one."""

PAGES = ["experiments", "experiment", "run", "rollouts", "compare", "memory"]


def path_of(name, experiment):
    run = f"experiments/{experiment}/runs/high-s0"
    return {
        "experiments": "experiments",
        "experiment": f"experiments/{experiment}",
        "run": run,
        "rollouts": f"{run}/rollouts?phase=validation",
        "compare": f"compare?left={experiment}%2Flow&right={experiment}%2Fhigh&margin=0.2",
        "memory": "memory",
    }[name]
