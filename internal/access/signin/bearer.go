package signin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"millrace/internal/access/token"
	"millrace/internal/wire/message"
)

const (
	// waitForKey is how long a request waits for a key that is being fetched.
	waitForKey = 5 * time.Second
	// maxUser is the longest name of a user, in bytes.
	maxUser = 256
)

// bearer lets clients in by a valid token.
type bearer struct {
	tokens *token.Checker
	cookie string
	errors *slog.Logger
}

// accessToken is the query parameter that RFC 6750, 2.3 allows for tokens. A token there
// is not accepted.
const accessToken = "access_token"

// find returns the token of a request, and where it was. Anything that the job could take
// for another token is removed, or the request is refused: the job might use the one that
// was not checked (RFC 6750, 2: one method in each request).
func (b *bearer) find(r *http.Request) (t string, proof Proof, no *refusal) {
	var cookies []string
	names := []string{accessToken}
	if b.cookie != "" {
		cookies, names = cookieNamed(r.Header, b.cookie), append(names, spelled(b.cookie))
	}
	bearer, has := token.Bearer(r)
	switch {
	case has:
		t = bearer
		keepCookies(r.Header, func(c string) bool { return !slices.Contains(cookies, strings.Trim(c, " \t")) })
	case len(slices.Compact(cookies)) > 1:
		return "", Proof{}, ambiguous("there is more than one cookie with a token")
	default:
		if t = token.InCookie(r, b.cookie); t == "" {
			return "", Proof{}, &refusal{status: http.StatusUnauthorized, challenge: "Bearer"}
		}
		proof.Cookie = b.cookie
		if !otherScheme(r.Header.Get("Authorization")) {
			delete(r.Header, "Authorization")
		}
	}
	if asksBy(r, names...) {
		return "", Proof{}, ambiguous("there is a token in the address as well")
	}
	return t, proof, nil
}

// ambiguous refuses a request in which more than one thing could be the token (RFC
// 6750, 3.1).
func ambiguous(why string) *refusal {
	return &refusal{status: http.StatusBadRequest, challenge: `Bearer error="invalid_request", error_description="` + why + `"`}
}

// admit implements way (RFC 6750, 3).
func (b *bearer) admit(r *http.Request) (visitor, *refusal) {
	t, proof, no := b.find(r)
	if no != nil {
		return visitor{}, no
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
	return visitor{user: claims.Subject, proof: proof}, nil
}

// admitNow implements quick, for a token in Authorization alone whose key is known.
func (b *bearer) admitNow(q *message.Request) (user string, ok bool) {
	if b.cookie != "" && q.Fields.Has("Cookie") {
		return "", false
	}
	r := q.HTTP(context.Background(), "")
	if r == nil {
		return "", false
	}
	t, proof, no := b.find(r)
	if no != nil || proof != (Proof{}) {
		return "", false
	}
	claims, err := b.tokens.Check(t)
	return claims.Subject, err == nil && sendable(claims.Subject)
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
