#!/usr/bin/env python3
"""Measures every partition of model states on two hosts with a slow network, and the partition that Ballast chooses.

    sudo bench/two_hosts.py [--gbits 1 10] [--ranks 1] [--model small] [--repeats 5] [-o two-hosts]

The hosts are network namespaces of this machine with different host names. A virtual cable connects them, whose
bandwidth `tc` limits. Open MPI starts the ranks over TCP, as between machines; ranks of a host share memory. For each
bandwidth, `ballast profile` measures the network, and `ballast train` chooses a partition by its own measurements. Then
all legal partitions take turns, --repeats times, and each is simulated with the same measurements. Needs root, iproute2
and Open MPI. Takes about a quarter of an hour by default.

Bar: the median of the chosen partition is at most 10% slower than that of the fastest; bars.py accounts for noise.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import bars
import peers

HOSTS, NETWORK = ("ballast-a", "ballast-b"), "10.213.77"
SLOWER_MAX = 0.1
BURST = {1: "256kb", 10: "2mb"}


@dataclasses.dataclass(frozen=True)
class Work:
    model: str
    dtype: str
    batch: int
    seq: int
    steps: int


def call(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        peers.fail(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.returncode}")


def remove_hosts():
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False)


@contextlib.contextmanager
def two_hosts(gbits):
    """Both hosts, joined at this bandwidth each way."""
    remove_hosts()
    try:
        for host in HOSTS:
            call("ip", "netns", "add", host)
            call("ip", "-n", host, "link", "set", "lo", "up")
        call("ip", "link", "add", "cable0", "netns", HOSTS[0], "type", "veth", "peer", "name", "cable1", "netns", HOSTS[1])
        for i, host in enumerate(HOSTS):
            call("ip", "-n", host, "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", f"cable{i}")
            call("ip", "-n", host, "link", "set", f"cable{i}", "up")
            shaped = ["tbf", "rate", f"{gbits}gbit", "burst", BURST.get(gbits, "2mb"), "latency", "50ms"]
            call("ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", f"cable{i}", "root", *shaped)
        yield
    finally:
        remove_hosts()


def make_agent(folder):
    """What mpirun starts a host's daemon by, in the place of ssh: HOST COMMAND..."""
    names = folder / "hosts"
    names.write_text("".join(f"{NETWORK}.{i + 1} {host}\n" for i, host in enumerate(HOSTS)) + "127.0.0.1 localhost\n")
    agent = folder / "agent"
    agent.write_text(
        "#!/bin/sh\nhost=$1\nshift\n"
        f'exec ip netns exec "$host" unshare --uts --mount sh -c "hostname $host; mount --bind {names} /etc/hosts; exec $*"\n'
    )
    agent.chmod(0o755)
    return agent


def on_two_hosts(agent, ranks, command):
    """`command` with so many ranks on each host."""
    tcp = ["--mca", "btl", "self,vader,tcp", "--mca", "btl_tcp_if_include", f"{NETWORK}.0/24"]
    start = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--oversubscribe", "-n", 2 * ranks]
    start += ["--host", ",".join(f"{host}:{ranks}" for host in HOSTS), "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", agent]
    start += [*tcp, "--mca", "oob_tcp_if_include", f"{NETWORK}.0/24", "-x", "XDG_CACHE_HOME"]
    line = " ".join(f"'{word}'" for word in [*start, *command])
    return [agent, HOSTS[0], line]


def run(options, agent, command):
    log = options.folder / "two-hosts.log"
    with open(log, "wb") as errors:
        words = [str(word) for word in on_two_hosts(agent, options.ranks, command)]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        peers.fail(peers.why_failed(done.returncode, log))
    return done.stdout.decode()


@dataclasses.dataclass
class Turns:
    """Of a partition: median seconds of a step, without the first, of each repeat; and the simulated ones."""

    seconds: list
    predicted_s: float = 0


def train(options, agent, work, files, extra):
    """The run's directory."""
    folder = options.folder / "two-hosts-run"
    shutil.rmtree(folder, ignore_errors=True)
    run(options, agent, peers.ballast_command(options, *files, folder, work, extra))
    return folder


def step_seconds(folder):
    return peers.median(peers.read_metrics(folder)["step_s"][1:])


def predict(options, folder):
    words = [options.build / "ballast", "simulate", folder, "--json"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        peers.fail(f"simulate: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)["step_s"]


def chosen_partition(folder):
    return partition_text(json.loads((folder / "run.json").read_text())["plan"]["policy"]["partition"])


def partition_text(widths):
    return "|".join(str(widths[kind]) for kind in ("parameters", "gradients", "optimizer"))


def legal_partitions(nodes, per_node):
    ranks = nodes * per_node
    widths = [w for w in range(1, ranks + 1) if ranks % w == 0 and (per_node % w == 0 if w <= per_node else w % per_node == 0)]
    triples = {(p, g, o) for o in widths for p in widths for g in (p, o) if o % p == 0}
    return sorted("|".join(map(str, triple)) for triple in triples)


def measure(options, agent, work, gbits):
    files = peers.make_model(options, work.model, max(1024, work.seq)), peers.make_tokens(
        options, work.model, work.batch * work.seq + 1
    )
    cluster = options.folder / "two-hosts.json"
    cache = options.folder / "two-hosts-cache"
    shutil.rmtree(cache, ignore_errors=True)  # what another network's measurements would be taken from
    os.environ["XDG_CACHE_HOME"] = str(cache)
    run(options, agent, [options.build / "ballast", "profile", "-o", cluster])
    picked = chosen_partition(train(options, agent, work, files, []))
    turns = {partition: Turns([]) for partition in legal_partitions(2, options.ranks)}
    for repeat in range(options.repeats):
        for partition, own in turns.items():
            folder = train(options, agent, work, files, ["--partition", partition])
            own.seconds.append(step_seconds(folder))
            own.predicted_s = own.predicted_s or predict(options, folder)
            print(f"{gbits} Gbit/s, repeat {repeat + 1}: {partition}: {own.seconds[-1]:.3f} s", file=sys.stderr, flush=True)
    return cluster, picked, turns


def network_of(cluster, gbits):
    """What was measured between the hosts, in words: by a pair alone, and by both at once each way."""
    links = json.loads(cluster.read_text())["links"]
    pair, across = links["pairs"][0] if links["pairs"] else None, links["messages"]["across nodes"]
    words = f"{8e-9 * across['bytes_per_s']:.2f} Gbit/s both ways at once, after {1e6 * across['latency_s']:.0f} us"
    if not pair:
        return words
    rate = 8e-9 * pair["bytes_per_s"]
    return f"{rate:.2f} Gbit/s from one host to the other ({100 * rate / gbits:.0f}% of what is set), {words}"


def verdict(gbits, picked, turns):
    middle = {partition: peers.median(own.seconds) for partition, own in turns.items()}
    fastest = min(middle, key=middle.get)
    slower = middle[picked] / middle[fastest] - 1
    judged = bars.judge(bars.paired(turns[picked].seconds, turns[fastest].seconds), max_ratio=1 + SLOWER_MAX)
    return (
        f"- {gbits} Gbit/s: picked {picked}, {100 * slower:+.1f}% against the fastest, {fastest} "
        f"({judged}: within {100 * SLOWER_MAX:.0f}%)"
    )


def rows_of(gbits, picked, turns):
    for partition, own in turns.items():
        middle, spread = peers.median(own.seconds), f"{min(own.seconds):.3f} to {max(own.seconds):.3f}"
        predicted = f"{own.predicted_s:.3f} ({100 * (own.predicted_s / middle - 1):+.1f}%)"
        mark = "picked" if partition == picked else ""
        yield [f"{gbits} Gbit/s", partition.replace("|", "\\|"), f"{middle:.3f}", spread, predicted, mark]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_options(parser)
    parser.add_argument("--gbits", nargs="+", type=int, default=[1, 10], help="bandwidths of the network [1 10]")
    parser.add_argument("--ranks", type=int, default=1, help="of each host [1]")
    parser.add_argument("--model", choices=peers.SIZES, default="small", help="[small]")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="[fp32]")
    parser.add_argument("--seq", type=int, default=256, help="[256]")
    parser.add_argument("--batch", type=int, default=4, help="over all ranks [4]")
    parser.add_argument("--steps", type=int, default=6, help="of each start; the first is left out [6]")
    parser.add_argument("--repeats", type=int, default=5, help="[5]")
    options = parser.parse_args()
    options.threads = max(1, options.threads // (2 * options.ranks))
    if os.geteuid() != 0:
        peers.fail("needs root: network namespaces are made")
    for tool in ("ip", "tc", "unshare", "mpirun.openmpi"):
        if not shutil.which(tool):
            peers.fail(f"{tool} is not there: apt-get install iproute2 util-linux openmpi-bin")
    peers.prepare(options)
    return options


def main():
    options = parse()
    work = Work(options.model, options.dtype, options.batch, options.seq, options.steps)
    rows, lines = [], []
    with tempfile.TemporaryDirectory() as folder:
        agent = make_agent(pathlib.Path(folder))
        for gbits in options.gbits:
            with two_hosts(gbits):
                cluster, picked, turns = measure(options, agent, work, gbits)
            rows += rows_of(gbits, picked, turns)
            lines.append(f"{verdict(gbits, picked, turns)}; the profile says {network_of(cluster, gbits)}")
    head = ["network", "partition", "seconds a step", "range", "simulated", ""]
    configuration = (
        f"2 hosts of {options.ranks} rank(s) of {options.threads} thread(s); {work.model} {work.dtype} {work.batch}x{work.seq}; "
        f"{options.repeats} repeats of {work.steps} steps, in turns."
    )
    peers.report(options, "Partitions on two hosts", configuration, peers.table(head, rows) + "\n\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
