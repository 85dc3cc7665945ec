"""From raw reviews to a saved data set: time, memory and bytes, also after a kill.

    python benchmarks/build.py                        # one million reviews, 100,000 products
    python benchmarks/build.py --reviews 100000 --items 10000 --kill

Each build runs in its own process. Its peak memory is the sum over the process and its workers,
sampled ten times a second. The time to generate the raw files doesn't count.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import invented
from loger.tables.reviews.parts import LINES


def resident(pid: int) -> int:
    """Bytes of memory of a process and its descendants: each page shared by n counts 1/n."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, ValueError):
        return total
    return total + sum(resident(int(child)) for child in children)


def build(
    reviews: Path, meta: Path, out: Path, workers: int, core: int, kill_after: int = 0
) -> tuple[float, int]:
    """Seconds and peak bytes of one build; killed when so many parts are there, if asked."""
    command = [sys.executable, "-m", "loger", "data", "build", "amazon", "--reviews", str(reviews)]
    command += ["--meta", str(meta), "--out", str(out), "--set", f"workers={workers}", "--json"]
    command += ["--set", f"user_core={core}", "--set", f"item_core={core}"]
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    work = out.with_name(out.name + ".work")
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        if kill_after and len(list(work.glob("reviews-*/part-*.json"))) >= kill_after:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return time.perf_counter() - start, peak
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return time.perf_counter() - start, peak


def digest(folder: Path) -> str:
    total = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        total.update(file.name.encode() + file.read_bytes())
    return total.hexdigest()[:16]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--reviews", type=int, default=1_000_000)
    arguments.add_argument("--items", type=int, default=100_000)
    arguments.add_argument("--users", type=int, default=150_000)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--core", type=int, default=5, help="1 keeps every review")
    arguments.add_argument("--layout", choices=("2018", "2023"), default="2018")
    arguments.add_argument("--folder", type=Path, default=Path("/tmp/loger-build"))
    arguments.add_argument("--kill", action="store_true", help="also kill and resume")
    given = arguments.parse_args()
    sizes = invented.Sizes(given.users, given.items, given.reviews)
    start = time.perf_counter()
    reviews, meta = invented.write(given.folder / given.layout, given.layout, sizes)
    packed = (reviews.stat().st_size + meta.stat().st_size) / 1e6
    print(f"invented {given.reviews:,} reviews, {given.items:,} products, {packed:.0f} MB packed, "
          f"{time.perf_counter() - start:.0f} s")  # fmt: skip
    first, again = given.folder / "first", given.folder / "again"
    for out in (first, again):
        for place in (out, out.with_name(out.name + ".work")):
            shutil.rmtree(place, ignore_errors=True)
    seconds, peak = build(reviews, meta, first, given.workers, given.core)
    print(f"built in {seconds:.0f} s, peak {peak / 2**30:.2f} GiB, bytes {digest(first)}")
    if given.kill:
        half = max(1, given.reviews // LINES["reviews"] // 2)
        seconds, _ = build(reviews, meta, again, given.workers, given.core, kill_after=half)
        assert not again.exists(), "it was over before it was killed"
        print(f"killed after {seconds:.0f} s")
        seconds, peak = build(reviews, meta, again, given.workers, given.core)
        same = "the same bytes" if digest(first) == digest(again) else "OTHER BYTES"
        print(f"resumed and built in {seconds:.0f} s, peak {peak / 2**30:.2f} GiB: {same}")


if __name__ == "__main__":
    main()
