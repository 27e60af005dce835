package signin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"millrace/internal/token"
)

const (
	// waitForKey is how long a request waits for a key that is being fetched.
	waitForKey = 5 * time.Second
	// maxUser is the longest name of a user, in bytes.
	maxUser = 256
)

// bearer lets in who brings a good token.
type bearer struct {
	tokens *token.Checker
	cookie string
	errors *slog.Logger
}

// admit implements way (RFC 6750, 3).
func (b *bearer) admit(r *http.Request) (visitor, *refusal) {
	t := cmp.Or(token.Bearer(r), token.InCookie(r, b.cookie))
	if t == "" {
		return visitor{}, &refusal{status: http.StatusUnauthorized, challenge: "Bearer"}
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitForKey)
	defer cancel()
	claims, err := b.tokens.Wait(ctx, t)
	switch {
	case errors.Is(err, token.ErrUnavailable):
		b.errors.Warn("a token could not be checked", "err", err)
		return visitor{}, &refusal{status: http.StatusServiceUnavailable}
	case err == nil && !sendable(claims.Subject):
		err = errors.New("its sub is too long, or holds a control character, or begins or ends with a space")
	}
	if err != nil {
		return visitor{}, &refusal{status: http.StatusUnauthorized, challenge: `Bearer error="invalid_token", error_description="` + quotable(err.Error()) + `"`}
	}
	return visitor{user: claims.Subject}, nil
}

// sendable reports whether a header field can carry a name: at either end of a value
// spaces are lost (RFC 9110, 5.5), and with them the difference to another's.
func sendable(name string) bool {
	return len(name) <= maxUser && strings.Trim(name, " ") == name &&
		!strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// quotable is a text as RFC 6750, 3 lets it stand in error_description.
func quotable(s string) string {
	s = strings.TrimPrefix(s, token.ErrUnauthorized.Error()+": ")
	return strings.Map(func(c rune) rune {
		switch {
		case c == '"' || c == '\\':
			return '\''
		case c < ' ' || c > '~':
			return '?'
		}
		return c
	}, s)
}
