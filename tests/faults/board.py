"""The dashboard and the alerts of contrib in a Prometheus that scrapes `terapage metrics`."""

import json
import math
import os
import re
import shutil
import signal
import urllib.error
import urllib.parse
import urllib.request

from harness import ROOT, Child, check, free_port, need, wait_for

TIMEOUT_S = 300
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: terapage
    static_configs: [{{targets: ["{target}"]}}]
"""


def asked(address, path, **query):
    """What Prometheus answers; None while it starts."""
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=300) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        check(error.code == 503, f"{path} {query}: {error.read().decode(errors='replace')}")
    except OSError:
        pass
    return None


def targets():
    """The dashboard's queries: the panel, the query, and the labels that its legend shows."""
    with open(os.path.join(ROOT, "contrib", "grafana", "terapage.json"), encoding="utf-8") as file:
        for panel in json.load(file)["panels"]:
            for target in panel["targets"]:
                yield panel["title"], target["expr"], re.findall(r"{{(\w+)}}", target["legendFormat"])


def shows(address, query, labels):
    """Whether a query gives figures, each with a label of the legend."""
    series = (asked(address, "query", query=query) or {"result": []})["result"]
    check(not labels or all(set(labels) & one["metric"].keys() for one in series), f"{query}: the legend has none of {labels}")
    return any(math.isfinite(float(one["value"][1])) for one in series)


def evaluated(address):
    """The alerts, once each has been evaluated."""
    alerts = [rule for group in (asked(address, "rules") or {"groups": []})["groups"] for rule in group["rules"]]
    return alerts if all(alert["health"] != "unknown" for alert in alerts) else None


def board(bench):
    """Each query of the dashboard gives figures of a paged program, and each alert can be evaluated, in a Prometheus that scrapes the metrics."""
    need("prometheus")
    victim, ready, second = bench.build("victim.c"), bench.path("ready"), bench.path("second")
    os.mkdir(second)
    metrics = [*bench.command, "metrics", "--listen", "127.0.0.1:0", "--by", "cgroup"]
    address = f"127.0.0.1:{free_port()}"
    with bench.start([victim, "96", ready], "--memory", "32M", store=f"mirror:{bench.store}+{second}") as child, \
            Child(metrics, bench.place, stdout="metrics") as server:
        wait_for(lambda: "http://" in server.errors(), "the metrics", TIMEOUT_S)
        target = re.search(r"http://([^/]+)/", server.errors()).group(1)
        with open(bench.path("prometheus.yaml"), "w", encoding="utf-8") as file:
            rules = shutil.copy(os.path.join(ROOT, "contrib", "prometheus", "terapage.yaml"), bench.path("rules.yaml"))
            file.write(CONFIG.format(rules=rules, target=target))
        words = ["prometheus", f"--config.file={file.name}", f"--storage.tsdb.path={bench.path('series')}", f"--web.listen-address={address}"]
        queries = list(targets())
        with Child(words, bench.place, stdout="prometheus") as prometheus:
            def answers():
                check(prometheus.process.poll() is None, f"prometheus: {prometheus.last_words()}")
                return asked(address, "query", query="terapage_build_info")

            wait_for(answers, "Prometheus", TIMEOUT_S)
            for panel, text, labels in queries:
                query = text.replace("$__rate_interval", "8s").replace("$instance", re.escape(target).replace("\\", "\\\\"))
                wait_for(lambda: shows(address, query, labels), f"figures of '{panel}': {query}", TIMEOUT_S)  # noqa: B023
            alerts = wait_for(lambda: evaluated(address), "alerts", TIMEOUT_S)
            check(all(alert["health"] == "ok" for alert in alerts), f"{alerts}")
        with open(ready, encoding="ascii") as file:
            os.kill(int(file.read()), signal.SIGTERM)
        bench.end(child)
    return f"{len(queries)} queries, {len(alerts)} alerts"
