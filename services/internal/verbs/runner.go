package verbs

// CancelRun is the runner service's only verb: to end a run before its time.
const CancelRun = "cancel-run"

// CancelRunBody is the body of CancelRun.
type CancelRunBody struct {
	RunID string `json:"runId"`
}
