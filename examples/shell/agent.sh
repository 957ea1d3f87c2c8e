#!/usr/bin/env bash
# An agent for Holdfast that is a shell script (adapter exec): it is started for each
# message, gets a RunAgentInput on stdin, and prints AG-UI events, one a line. What it
# prints on stderr is shown when its run fails. A cancel is SIGTERM.
#
# It keeps notes. Say to it
#
#     note buy milk          it asks Holdfast whether it may, parks while a person thinks,
#                            and is started again once there is an answer
#     hold note buy milk     the same, but it waits in the middle of its run
#     show                   the notes so far
#     count 50               counts, so that there is something to cancel
#     config                 the session, with its config
#     anything else          it says it back
#
# Try it against `holdfast dev`:
#
#     holdfast policy apply -f examples/policy.yaml
#     holdfast runtime apply -f examples/shell/runtime.yaml
#     holdfast session create notes-shell -m 'note call the plumber on Monday' -w
#
# It needs bash and nothing else: HTTP goes over bash's own /dev/tcp.
set -euo pipefail

notes=notes.txt # in the workspace, which outlives the process
input=$(cat)    # the whole RunAgentInput; what is needed of it is in the environment too
run=$HOLDFAST_RUN_ID thread=$HOLDFAST_THREAD_ID message=${HOLDFAST_MESSAGE-}

# --- JSON, as far as this needs it ---------------------------------------------------

# string TEXT: as JSON.
string() {
	local s=${1//\\/\\\\}
	s=${s//\"/\\\"} s=${s//$'\n'/\\n} s=${s//$'\r'/\\r} s=${s//$'\t'/\\t}
	printf '"%s"' "$s"
}

# field NAME JSON: a string in it, as it is written there.
field() {
	[[ $2 =~ \"$1\":\ *\"([^\"]*)\" ]] && printf '%s' "${BASH_REMATCH[1]}"
}

# --- Holdfast: what an agent may do --------------------------------------------------

# holdfast METHOD PATH [BODY]: calls Holdfast and prints the answer, or fails with it.
# Every call may be repeated: the same ids get the same answer.
holdfast() {
	local LC_ALL=C host=${HOLDFAST_URL#http://} body=${3-} status line answer
	exec 3<>"/dev/tcp/${host%:*}/${host#*:}"
	printf '%s /v1/agent%s HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' \
		"$1" "$2" "${#body}" "$body" >&3
	read -r _ status _ <&3
	while read -r line <&3 && [[ $line != $'\r' ]]; do :; done
	answer=$(cat <&3)
	exec 3>&-
	if [[ $status != 2* ]]; then
		echo "$1 $2: $status $answer" >&2
		return 1
	fi
	printf '%s' "$answer"
}

# --- a run ---------------------------------------------------------------------------

# event TYPE [FIELDS]: says an event.
event() {
	printf '{"type":"%s"%s}\n' "$1" "${2:+,$2}"
}

texts=0
# text PIECE: says a message of the agent's.
text() {
	local id="\"messageId\":\"$run-$((++texts))\""
	event TEXT_MESSAGE_START "$id,\"role\":\"assistant\""
	event TEXT_MESSAGE_CONTENT "$id,\"delta\":$(string "$1")"
	event TEXT_MESSAGE_END "$id"
}

finish() {
	event RUN_FINISHED "\"threadId\":\"$thread\",\"runId\":\"$run\",\"outcome\":$1"
	exit
}

# note MODE TEXT: asks whether a note may be written, and writes it once it may. A run
# that goes on after an answer asks the same again, and gets the answer.
note() {
	local call_id="note-$HOLDFAST_MESSAGE_ID" args call verdict hash decision nonce result
	args="{\"text\":$(string "$2")}"
	if [[ $input != *'"resume":['* ]]; then
		event TOOL_CALL_START "\"toolCallId\":\"$call_id\",\"toolCallName\":\"write_note\""
		event TOOL_CALL_ARGS "\"toolCallId\":\"$call_id\",\"delta\":$(string "$args")"
		event TOOL_CALL_END "\"toolCallId\":\"$call_id\""
	fi
	verdict=$(holdfast POST /calls \
		"{\"agentCallId\":\"$call_id\",\"runId\":\"$run\",\"tool\":\"write_note\",\"args\":$args,\"modes\":[\"$1\"]}")
	call=$(field call "$verdict") hash=$(field argsHash "$verdict")
	until decision=$(field decision "$verdict"); do
		if [[ $(field mode "$verdict") == park ]]; then
			finish "{\"type\":\"interrupt\",\"interrupts\":[{\"id\":\"$call\",\"reason\":\"tool_call\",\"toolCallId\":\"$call_id\",\"message\":\"May I write that down?\"}]}"
		fi
		verdict=$(holdfast GET "/calls/$call?wait=30")
	done
	result="not written: $(field reason "$verdict" || true)"
	if [[ $decision == allow ]]; then
		# Claims the call, which can be done once, does it, and reports what came of it.
		nonce=$run-$RANDOM$RANDOM
		holdfast POST "/calls/$call/start" "{\"runId\":\"$run\",\"argsHash\":\"$hash\",\"nonce\":\"$nonce\"}" >/dev/null
		printf '%s\n' "$2" >>"$notes"
		holdfast POST "/calls/$call/result" "{\"runId\":\"$run\",\"nonce\":\"$nonce\",\"exitCode\":0,\"output\":\"written\"}" >/dev/null
		result=written
	fi
	event TOOL_CALL_RESULT "\"messageId\":\"$run-result\",\"toolCallId\":\"$call_id\",\"content\":$(string "$result")"
	text "$result"
}

# count N: a number each tenth of a second, as pieces of one message.
count() {
	local id="\"messageId\":\"$run-count\"" i
	event TEXT_MESSAGE_START "$id,\"role\":\"assistant\""
	for ((i = 0; i < $1; i++)); do
		event TEXT_MESSAGE_CONTENT "$id,\"delta\":\"$i \""
		sleep 0.1
	done
	event TEXT_MESSAGE_END "$id"
}

event RUN_STARTED "\"threadId\":\"$thread\",\"runId\":\"$run\""
case $message in
'note '*) note park "${message#note }" ;;
'hold note '*) note hold "${message#hold note }" ;;
'count '*) count "${message#count }" ;;
show) text "$(cat "$notes" 2>/dev/null || echo nothing yet)" ;;
config) text "$(holdfast GET /session)" ;;
*) text "$message" ;;
esac
finish '{"type":"success"}'
