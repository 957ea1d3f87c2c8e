package verbs

// RedeemBind has the workload service grant a session to the sandbox of a Pod, or renew
// its token. The gateway asks it for sandboxd, with what that presents; the answer is
// sandboxapi.Grant. The request's session is the bind's.
const RedeemBind = "redeem-bind"

// RedeemBindBody is the body of RedeemBind. Neither token, bind nor secret may be logged; a token
// is a Pod's own, and must be in no event.
type RedeemBindBody struct {
	// Token is the Pod's projected service-account token.
	Token string `json:"token"`
	// Bind is the signed bind.
	Bind string `json:"bind"`
	// Secret is that of the process that presents it; see bind.Bind.
	Secret string `json:"secret,omitempty"`
	// Renew says that the bind was redeemed before, and may be past its deadline.
	Renew bool `json:"renew,omitempty"`
}
