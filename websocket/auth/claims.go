package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// maxUser and maxInfo bound what is kept for every connection, and told to
	// everyone who asks who is there.
	maxUser = 256
	maxInfo = 4 << 10
	// lastSecond is the end of the year 9999: a time past it was meant in
	// milliseconds.
	lastSecond = 253402300799
)

// claimed is what a token or an answer says about a client.
type claimed struct {
	user    string
	info    []byte
	expires time.Time

	subscribe, publish, presence []pattern
}

// read takes the members of an object of JSON that both ways share.
func (c *claimed) read(m map[string]json.RawMessage, user string) error {
	if err := text(m, user, &c.user); err != nil {
		return err
	}
	if len(c.user) > maxUser {
		return fmt.Errorf("its %s has %d bytes: at most %d", user, len(c.user), maxUser)
	}
	for key, list := range map[string]*[]pattern{"subscribe": &c.subscribe, "publish": &c.publish, "presence": &c.presence} {
		if err := patternList(m, key, list); err != nil {
			return err
		}
	}
	info := m["info"]
	if len(info) == 0 || string(info) == "null" {
		return nil
	}
	var line bytes.Buffer // one line: it goes into event streams too
	if err := json.Compact(&line, info); err != nil {
		return fmt.Errorf("its info: %w", err)
	}
	c.info = bytes.ToValidUTF8(line.Bytes(), []byte(string(utf8.RuneError)))
	if len(c.info) > maxInfo {
		return fmt.Errorf("its info has %d bytes: at most %d", len(c.info), maxInfo)
	}
	return nil
}

func text(m map[string]json.RawMessage, key string, to *string) error {
	raw, ok := m[key]
	if !ok {
		return nil
	}
	if json.Unmarshal(raw, to) != nil {
		return fmt.Errorf("its %s is not text", key)
	}
	return nil
}

func patternList(m map[string]json.RawMessage, key string, to *[]pattern) error {
	raw, ok := m[key]
	if !ok {
		return nil
	}
	var texts []string
	if json.Unmarshal(raw, &texts) != nil {
		return fmt.Errorf(`its %s is not a list of patterns, which looks like ["news", "chat:*"]`, key)
	}
	if len(texts) > maxPatterns {
		return fmt.Errorf("its %s has %d patterns: at most %d", key, len(texts), maxPatterns)
	}
	for _, t := range texts {
		if len(t) > maxPattern {
			return fmt.Errorf("its %s has a pattern of %d bytes: at most %d", key, len(t), maxPattern)
		}
		*to = append(*to, parsePattern(t))
	}
	return nil
}

// seconds reads a time as RFC 7519, 2 gives it: seconds since 1970, perhaps
// with a fraction. No member means no time, and so does null.
func seconds(m map[string]json.RawMessage, key string) (*jwt.NumericDate, error) {
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
	return &jwt.NumericDate{Time: time.Unix(int64(whole), int64(part*float64(time.Second)))}, nil
}

// claims are a token's. The names are compared as they are written, which
// encoding/json does not do for the fields of a struct.
type claims struct {
	claimed
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
	var err error
	if c.exp, err = seconds(m, "exp"); err != nil {
		return err
	}
	if c.nbf, err = seconds(m, "nbf"); err != nil {
		return err
	}
	if err := text(m, "iss", &c.issuer); err != nil {
		return err
	}
	if raw, ok := m["aud"]; ok {
		if err := json.Unmarshal(raw, &c.audience); err != nil {
			return errors.New("its aud is neither a text nor a list of texts")
		}
	}
	return c.read(m, "sub")
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
func (c *claims) GetSubject() (string, error) { return c.user, nil }

// GetAudience implements [jwt.Claims].
func (c *claims) GetAudience() (jwt.ClaimStrings, error) { return c.audience, nil }

// answered reads what a URL said.
func answered(data []byte, now time.Time) (claimed, error) {
	var m map[string]json.RawMessage
	var c claimed
	if err := json.Unmarshal(data, &m); err != nil || m == nil {
		return c, errors.New(`its answer is not an object of JSON, which looks like {"user": "7", "subscribe": ["news"]}`)
	}
	if err := c.read(m, "user"); err != nil {
		return c, err
	}
	end, err := seconds(m, "expires")
	if err != nil || end == nil {
		return c, err
	}
	c.expires = end.Time
	if !now.Before(c.expires) {
		return c, fmt.Errorf("%w: the permission has expired", ErrUnauthorized)
	}
	return c, nil
}

// printable is s without what would spoil a log or a message.
func printable(s string) string {
	const most = 200
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
