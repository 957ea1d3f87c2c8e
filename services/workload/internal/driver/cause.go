package driver

// Causes of a loss that machines tell apart, in an Event and in a Found: a driver
// had to end the sandbox to protect others. Other causes are words for people.
const (
	// CauseDiskLimit ended a sandbox whose workspace outgrew Limits.DiskBytes.
	CauseDiskLimit = "disk-limit"
	// CauseDiskReserve ended the sandbox that wrote the most while the disk of the
	// driver's data was down to its reserve.
	CauseDiskReserve = "disk-reserve"
)
