package token

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// Leeway is how far the clocks of who signs and of who checks may differ.
	Leeway = 30 * time.Second
	// maxToken is what servers allow for a whole header, and so what tokens
	// that work elsewhere have at most.
	maxToken = 8 << 10
	// maxTried is how many keys a token without a kid is tried with: each costs
	// a verification, also for who only wants to keep us busy.
	maxTried = 4
)

// keys is where a verifier has its keys from.
type keys interface {
	// find returns the keys that may have signed a token with this algorithm
	// and key id ("" if it has none). The error is one of those of the package,
	// or *keyUnknown.
	find(alg, kid string) ([]key, error)
}

// keyUnknown is ErrUnavailable for now: the key is being fetched.
type keyUnknown struct {
	kid  string
	done <-chan struct{} // closed when it was fetched, or could not be
}

// Error implements error.
func (u *keyUnknown) Error() string {
	return fmt.Sprintf("%v: the token's key %q is being fetched", ErrUnavailable, u.kid)
}

// Unwrap lets errors.Is find ErrUnavailable.
func (u *keyUnknown) Unwrap() error { return ErrUnavailable }

// wait reports whether it is worth trying again.
func (u *keyUnknown) wait(ctx context.Context) bool {
	select {
	case <-u.done:
		return true
	case <-ctx.Done():
		return false
	}
}

type verifier struct {
	parser   *jwt.Parser
	keys     keys
	audience bool // is compared
}

func newVerifier(j Options, k keys) *verifier {
	o := []jwt.ParserOption{
		jwt.WithStrictDecoding(), // one spelling for one token
		jwt.WithLeeway(Leeway),
		jwt.WithValidMethods(algorithms()),
	}
	if j.Issuer != "" {
		o = append(o, jwt.WithIssuer(j.Issuer))
	}
	if j.Audience != "" {
		o = append(o, jwt.WithAudience(j.Audience))
	}
	return &verifier{parser: jwt.NewParser(o...), keys: k, audience: j.Audience != ""}
}

// verify returns what a token says, if it is good.
func (v *verifier) verify(token string) (Claims, error) {
	if len(token) > maxToken {
		return Claims{}, fmt.Errorf("%w: a token of %d bytes is too long: at most %d", ErrUnauthorized, len(token), maxToken)
	}
	var c claims
	var noKey error
	_, err := v.parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		var set jwt.VerificationKeySet
		set, noKey = v.candidates(t)
		return set, noKey
	})
	switch {
	case noKey != nil:
		return Claims{}, noKey
	case err != nil:
		return Claims{}, fmt.Errorf("%w: %w", ErrUnauthorized, v.reason(err, &c))
	}
	if c.exp != nil {
		c.Expires = c.exp.Add(Leeway)
	}
	return c.Claims, nil
}

func (v *verifier) candidates(t *jwt.Token) (jwt.VerificationKeySet, error) {
	var set jwt.VerificationKeySet
	// What an issuer says must be understood is not, none of it (RFC 7515,
	// 4.1.11).
	if _, there := t.Header["crit"]; there {
		return set, fmt.Errorf("%w: the token has a crit header, none of which is known here", ErrUnauthorized)
	}
	kid, _ := t.Header["kid"].(string)
	found, err := v.keys.find(t.Method.Alg(), kid)
	if err != nil {
		return set, err
	}
	if len(found) > maxTried {
		return set, fmt.Errorf("%w: the token does not say which of %d keys it is signed with: it needs a kid", ErrUnauthorized, len(found))
	}
	for _, k := range found {
		set.Keys = append(set.Keys, k.public)
	}
	return set, nil
}

// reason says in our words what is wrong with a token.
func (v *verifier) reason(err error, c *claims) error {
	missing := errors.Is(err, jwt.ErrTokenRequiredClaimMissing)
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return fmt.Errorf("%w at %s", ErrExpired, c.exp.UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return fmt.Errorf("the token is not valid before %s", c.nbf.UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrTokenInvalidAudience), missing && v.audience && len(c.audience) == 0:
		return errors.New("the token is for another audience")
	case errors.Is(err, jwt.ErrTokenInvalidIssuer), missing:
		return errors.New("the token is from another issuer")
	case errors.Is(err, jwt.ErrTokenMalformed):
		return fmt.Errorf("the token cannot be read: %s", Printable(err.Error()))
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return errors.New("the token's signature is wrong")
	}
	return errors.New(Printable(err.Error()))
}

// fitting are the keys of a list that may have signed a token.
func fitting(list []key, alg, kid string) []key {
	var found []key
	for _, k := range list {
		if slices.Contains(k.algs, alg) && (kid == "" || k.id == "" || k.id == kid) {
			found = append(found, k)
		}
	}
	return found
}
