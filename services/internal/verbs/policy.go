package verbs

import (
	"encoding/json"
	"time"
)

// The verbs of the policy service.
const (
	Propose      = "propose"
	ReadCall     = "read-call"
	Start        = "start"
	Complete     = "complete"
	Deliver      = "deliver"
	Answer       = "answer"
	PolicyApply  = "policy-apply"
	PolicyRemove = "policy-remove"
)

// ProposeBody is the body of Propose: what an agent wants to do. Modes say how it
// can wait for people; session.ModeDelegate alone comes from the runner, for a tool
// that the run's client runs.
type ProposeBody struct {
	AgentCallID string          `json:"agentCallId"`
	RunID       string          `json:"runId"`
	Tool        string          `json:"tool"`
	Args        json.RawMessage `json:"args"`
	Modes       []string        `json:"modes"`
}

// CallResult answers Propose and ReadCall. Decision is allow, deny, or ask while
// a person is awaited (then Mode says hold or park).
type CallResult struct {
	Call     string `json:"call"`
	State    string `json:"state"`
	Decision string `json:"decision"`
	ArgsHash string `json:"argsHash"`
	Rule     string `json:"rule,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Mode     string `json:"mode,omitempty"`
}

// ReadCallBody is the body of ReadCall.
type ReadCallBody struct {
	Call string `json:"call"`
}

// StartBody is the body of Start: the agent is about to do it.
type StartBody struct {
	Call     string `json:"call"`
	RunID    string `json:"runId"`
	ArgsHash string `json:"argsHash"`
	Nonce    string `json:"nonce"`
}

// CompleteBody is the body of Complete: what came of it.
type CompleteBody struct {
	Call      string          `json:"call"`
	RunID     string          `json:"runId"`
	Nonce     string          `json:"nonce"`
	ExitCode  *int            `json:"exitCode,omitempty"`
	Output    string          `json:"output,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
	Error     string          `json:"error,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
}

// DeliverBody is the body of Deliver: the result of a tool that the client ran, in
// the message that brought it. Error says that the tool failed.
type DeliverBody struct {
	ToolCallID string `json:"toolCallId"`
	MessageID  string `json:"messageId"`
	Content    string `json:"content"`
	Error      string `json:"error,omitempty"`
}

// AnswerBody is the body of Answer: a person's decision on a call.
type AnswerBody struct {
	Call     string `json:"call"`
	Decision string `json:"decision"` // approve or deny
	ArgsHash string `json:"argsHash"`
	Comment  string `json:"comment,omitempty"`
}

// AnswerResult answers Answer; First is false for the same answer again.
type AnswerResult struct {
	Call     string    `json:"call"`
	State    string    `json:"state"`
	Decision string    `json:"decision"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	First    bool      `json:"first"`
}
