"""An agent that does what it is told, however wrong it is, by any adapter: rogue.py
agui|exec|push. A message is a script: each line an event to send as it is, but for
$RUN and $THREAD, or one of

    !exit 3      end the process so         !print x     say x on stderr
    !die         be killed                  !big 300000  an event of so many bytes
    !fine        a good end                 !stubborn    ignore SIGTERM and wait for ever
"""

import json
import os
import signal
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def play(given, send):
    started = '{"type":"RUN_STARTED","threadId":"$THREAD","runId":"$RUN"}'
    fine = '{"type":"RUN_FINISHED","threadId":"$THREAD","runId":"$RUN"}'
    script = [m for m in given["messages"] if m["role"] == "user"][-1]["content"]
    for line in [started, *script.split("\n")]:
        verb, _, arg = line.partition(" ")
        if verb == "!exit":
            os._exit(int(arg))
        elif verb == "!die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif verb == "!print":
            print(arg, file=sys.stderr, flush=True)
        elif verb == "!stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            send('{"type":"CUSTOM","name":"stubborn","value":1}')
            time.sleep(600)
        else:
            if verb == "!fine":
                line = fine
            elif verb == "!big":
                line = json.dumps({"type": "CUSTOM", "name": "big", "value": "x" * int(arg)})
            send(line.replace("$THREAD", given["threadId"]).replace("$RUN", given["runId"]))


def by_exec():
    play(json.load(sys.stdin), lambda event: print(event, flush=True))


def by_agui():
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                play(given, lambda event: self.wfile.write(b"data: " + event.encode() + b"\n\n"))
            except OSError:
                pass

        def log_message(self, *_):
            pass

    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()


def by_push():
    def call(path, body=None):
        request = urllib.request.Request(os.environ["HOLDFAST_URL"] + "/v1/agent" + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return answer.read()

    while True:
        given = call("/input?wait=30")
        if not given:
            continue
        given, sent = json.loads(given), []

        def send(event):
            sent.append(event)
            # All from the beginning, again and again: it is taken once.
            call("/events", json.dumps({"runId": given["runId"], "k": 1}).encode()[:-1] + b',"events":[' + ",".join(sent).encode() + b"]}")

        try:
            play(given, send)
        except OSError:
            pass  # refused: the run is over


{"agui": by_agui, "exec": by_exec, "push": by_push}[sys.argv[1]]()
