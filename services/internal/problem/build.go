package problem

// In adds where the session or call is and what can be asked of it there; it
// gives back the same problem.
func (e *Error) In(phase string, allowed ...string) *Error {
	e.Phase, e.Allowed = phase, allowed
	return e
}

// At adds one place of the request that is wrong; it gives back the same problem.
func (e *Error) At(pointer, detail string) *Error {
	e.Errors = append(e.Errors, Field{Pointer: pointer, Detail: detail})
	return e
}
