package app

import (
	"log/slog"

	"github.com/nats-io/nats.go"
)

// respond answers pings: that there is an answer is all they ask.
func respond(logger *slog.Logger) nats.MsgHandler {
	return func(m *nats.Msg) {
		if err := m.Respond(nil); err != nil {
			logger.Warn("ping not answered", slog.Any("error", err))
		}
	}
}
