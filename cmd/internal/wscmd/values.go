package wscmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/config"
	"millrace/websocket"
)

// Silence is how long something may be quiet, or off; kept as the config has it.
type Silence string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (q *Silence) UnmarshalText(text []byte) error {
	if string(text) == config.Off {
		*q = "-1s"
		return nil
	}
	*q = Silence(text)
	if d, err := time.ParseDuration(string(text)); err != nil || d <= 0 {
		return fmt.Errorf("%q is not a duration: write a number and its unit, like 30s or 5m, or off", text)
	}
	return nil
}

// Messages is how many are kept, as it was typed.
type Messages string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *Messages) UnmarshalText(text []byte) error {
	*m = Messages(text)
	if n, err := strconv.ParseUint(string(text), 10, 31); err != nil || n == 0 {
		return fmt.Errorf("%q is not a number of messages: write one like 100; to keep none: --no-history", text)
	}
	return nil
}

// SlowConsumer is a way to treat clients that do not read fast enough.
type SlowConsumer string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *SlowConsumer) UnmarshalText(text []byte) error {
	*c = SlowConsumer(text)
	if ways := websocket.SlowConsumers(); !slices.Contains(ways, string(text)) {
		return fmt.Errorf("%q is not a way to treat slow clients: use %s", text, strings.Join(ways, " or "))
	}
	return nil
}
