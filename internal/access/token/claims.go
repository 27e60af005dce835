package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// lastSecond is the end of the year 9999: a time past it was meant in
// milliseconds.
const lastSecond = 253402300799

// Text reads a member of an object of JSON that must be text. No member leaves
// to as it is.
func Text(m map[string]json.RawMessage, key string, to *string) error {
	raw, ok := m[key]
	if !ok {
		return nil
	}
	if json.Unmarshal(raw, to) != nil {
		return fmt.Errorf("its %s is not text", key)
	}
	return nil
}

// Seconds reads a time as RFC 7519, 2 gives it: seconds since 1970, perhaps
// with a fraction. No member means no time (nil), and so does null.
func Seconds(m map[string]json.RawMessage, key string) (*time.Time, error) {
	raw, ok := m[key]
	if !ok || string(raw) == "null" {
		return nil, nil
	}
	var s float64
	if json.Unmarshal(raw, &s) != nil {
		return nil, fmt.Errorf("its %s is not a number of seconds since 1970", key)
	}
	if s < 0 || s > lastSecond {
		return nil, fmt.Errorf("its %s of %.0f is not a number of seconds since 1970: are these milliseconds?", key, s)
	}
	whole, part := math.Modf(s)
	at := time.Unix(int64(whole), int64(part*float64(time.Second)))
	return &at, nil
}

// claims are a token's. The names are compared as they are written, which
// encoding/json does not do for the fields of a struct.
type claims struct {
	Claims
	issuer   string
	audience jwt.ClaimStrings
	exp, nbf *jwt.NumericDate
}

var _ jwt.Claims = (*claims)(nil)

// UnmarshalJSON implements [json.Unmarshaler].
func (c *claims) UnmarshalJSON(data []byte) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if m == nil {
		return errors.New("its claims are not an object")
	}
	for key, to := range map[string]**jwt.NumericDate{"exp": &c.exp, "nbf": &c.nbf} {
		at, err := Seconds(m, key)
		if err != nil {
			return err
		}
		if at != nil {
			*to = &jwt.NumericDate{Time: *at}
		}
	}
	if err := Text(m, "iss", &c.issuer); err != nil {
		return err
	}
	if raw, ok := m["aud"]; ok {
		if err := json.Unmarshal(raw, &c.audience); err != nil {
			return errors.New("its aud is neither a text nor a list of texts")
		}
	}
	c.Members = m
	return Text(m, "sub", &c.Subject)
}

// GetExpirationTime implements [jwt.Claims].
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return c.exp, nil }

// GetIssuedAt implements [jwt.Claims]. When it was issued tells nothing.
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error) { return nil, nil }

// GetNotBefore implements [jwt.Claims].
func (c *claims) GetNotBefore() (*jwt.NumericDate, error) { return c.nbf, nil }

// GetIssuer implements [jwt.Claims].
func (c *claims) GetIssuer() (string, error) { return c.issuer, nil }

// GetSubject implements [jwt.Claims].
func (c *claims) GetSubject() (string, error) { return c.Subject, nil }

// GetAudience implements [jwt.Claims].
func (c *claims) GetAudience() (jwt.ClaimStrings, error) { return c.audience, nil }
