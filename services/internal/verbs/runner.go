package verbs

// The verbs of the runner service.
const CancelRun = "cancel-run"

// CancelRunBody is the body of CancelRun.
type CancelRunBody struct {
	RunID string `json:"runId"`
}
