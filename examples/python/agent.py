"""An agent for Holdfast with Python's standard library alone (adapter agui).

It keeps notes. Say to it

    note buy milk          it asks Holdfast whether it may, parks while a person thinks,
                           and goes on in a new run once there is an answer
    hold note buy milk     the same, but it waits in the middle of its run
    show                   the notes so far
    count 50               counts, so that there is something to cancel
    config                 the session's own config
    anything else          it says it back, word by word

Try it against `holdfast dev`:

    holdfast policy apply -f examples/policy.yaml
    holdfast runtime apply -f examples/python/runtime.yaml
    holdfast session create notes-python -m 'note call the plumber on Monday' -w
    holdfast approvals list
"""

import json
import os
import secrets
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOLDFAST = os.environ["HOLDFAST_URL"] + "/v1/agent"
NOTES = "notes.txt"  # in the workspace, where the agent is started


# --- Holdfast: what an agent may do -----------------------------------------------


def holdfast(method, path, body=None):
    """Calls Holdfast. Every call may be repeated: the same ids get the same answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(HOLDFAST + path, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.load(answer)


def ask(run, call_id, text, mode):
    """Asks whether a note may be written; the policy decides, or a person."""
    verdict = holdfast("POST", "/calls", {
        "agentCallId": call_id, "runId": run, "tool": "write_note", "args": {"text": text}, "modes": [mode],
    })
    while "decision" not in verdict and verdict["mode"] == "hold":
        verdict = holdfast("GET", "/calls/" + verdict["call"] + "?wait=30")
    return verdict


def write_note(run, call, args_hash, text):
    """Claims the call, which can be done once, does it, and reports what came of it."""
    nonce = secrets.token_hex(8)
    holdfast("POST", f"/calls/{call}/start", {"runId": run, "argsHash": args_hash, "nonce": nonce})
    with open(NOTES, "a", encoding="utf-8") as notes:
        notes.write(text + "\n")
    holdfast("POST", f"/calls/{call}/result", {"runId": run, "nonce": nonce, "exitCode": 0, "output": "written"})


# --- a run ------------------------------------------------------------------------


class Run:
    """One turn: RunAgentInput in, AG-UI events out."""

    def __init__(self, given, say):
        self.given, self.send = given, say
        self.run, self.thread = given["runId"], given["threadId"]
        self.texts = 0

    def event(self, kind, **fields):
        self.send({"type": kind, **fields})

    def text(self, pieces):
        """Streams a message of the agent's, piece by piece as they come."""
        self.texts += 1
        message = f"{self.run}-{self.texts}"
        self.event("TEXT_MESSAGE_START", messageId=message, role="assistant")
        for piece in pieces:
            self.event("TEXT_MESSAGE_CONTENT", messageId=message, delta=piece)
        self.event("TEXT_MESSAGE_END", messageId=message)

    def finish(self, outcome):
        self.event("RUN_FINISHED", threadId=self.thread, runId=self.run, outcome=outcome)

    def work(self):
        self.event("RUN_STARTED", threadId=self.thread, runId=self.run)
        waits = self.answered() if self.given.get("resume") else self.message()
        self.finish(waits or {"type": "success"})

    def message(self):
        """Does what the newest message says; gives an outcome when it has to wait."""
        message = [m for m in self.given["messages"] if m["role"] == "user"][-1]
        said = message["content"]
        if said == "config":
            self.text([json.dumps(holdfast("GET", "/session").get("config"))])
        elif said == "show":
            self.text([open(NOTES, encoding="utf-8").read() if os.path.exists(NOTES) else "nothing yet"])
        elif said.startswith("count "):
            self.text(map(self.counted, range(int(said.removeprefix("count ")))))
        elif said.startswith("note "):
            return self.note("note-" + message["id"], said.removeprefix("note "), "park")
        elif said.startswith("hold note "):
            return self.note("note-" + message["id"], said.removeprefix("hold note "), "hold")
        else:
            self.text(word + " " for word in said.split())
        return None

    @staticmethod
    def counted(number):
        time.sleep(0.1)
        return f"{number} "

    def note(self, call_id, text, mode):
        self.event("TOOL_CALL_START", toolCallId=call_id, toolCallName="write_note")
        self.event("TOOL_CALL_ARGS", toolCallId=call_id, delta=json.dumps({"text": text}))
        self.event("TOOL_CALL_END", toolCallId=call_id)
        verdict = ask(self.run, call_id, text, mode)
        if "decision" in verdict:
            self.do(call_id, text, verdict["call"], verdict["argsHash"], verdict["decision"] == "allow", verdict.get("reason"))
            return None
        # Park: what the next run needs goes into the state, and the run ends with the question.
        self.event("STATE_SNAPSHOT", snapshot={"waiting": {
            "callId": call_id, "text": text, "call": verdict["call"], "argsHash": verdict["argsHash"],
        }})
        return {"type": "interrupt", "interrupts": [
            {"id": verdict["call"], "reason": "tool_call", "toolCallId": call_id, "message": "May I write that down?"},
        ]}

    def answered(self):
        """Goes on where the run before parked."""
        waiting, answer = self.given["state"]["waiting"], self.given["resume"][0]
        if answer["interruptId"] != waiting["call"]:
            raise ValueError("an answer to another question")
        payload = answer.get("payload") or {}
        self.do(waiting["callId"], waiting["text"], waiting["call"], waiting["argsHash"],
                payload.get("approved", False), payload.get("reason") or answer["status"])
        self.event("STATE_SNAPSHOT", snapshot={})

    def do(self, call_id, text, call, args_hash, allowed, reason):
        if allowed:
            write_note(self.run, call, args_hash, text)
        result = "written" if allowed else f"not written: {reason}"
        self.event("TOOL_CALL_RESULT", messageId=f"{self.run}-result", toolCallId=call_id, content=result)
        self.text([result])


# --- the server -------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            Run(given, self.say).work()
        except (BrokenPipeError, ConnectionResetError):
            pass  # the run was cancelled: nobody listens any more
        except urllib.error.HTTPError as refused:
            self.say({"type": "RUN_ERROR", "code": "refused", "message": refused.read().decode()})
        except Exception as failed:  # whatever it is, the run ends with the reason
            self.say({"type": "RUN_ERROR", "code": "failed", "message": repr(failed)})

    def say(self, event):
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
