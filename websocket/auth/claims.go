package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"millrace/internal/access/token"
)

const (
	// maxUser and maxInfo bound what is kept for every connection, and told to
	// everyone who asks who is there.
	maxUser = 256
	maxInfo = 4 << 10
)

// claimed is what a token or an answer says about a client.
type claimed struct {
	user    string
	info    []byte
	expires time.Time
	given   []Given
	token   bool // these are a token's

	subscribe, publish, presence []pattern
}

// read takes the members of an object of JSON that both ways share.
func (c *claimed) read(m map[string]json.RawMessage, user string) error {
	if err := token.Text(m, user, &c.user); err != nil {
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
	var err error
	if c.info, err = oneLine(m["info"], "info"); err != nil {
		return err
	}
	c.given, err = given(m)
	return err
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

// claimsOfToken returns the claims of a token that was verified.
func claimsOfToken(t token.Claims) (claimed, error) {
	c := claimed{expires: t.Expires, token: true}
	if err := errors.Join(c.read(t.Members, "sub"), until(t.Members, &c.expires), forConnection(t.Members)); err != nil {
		return claimed{}, fmt.Errorf("%w: the token cannot be read: %w", token.ErrUnauthorized, err)
	}
	return c, nil
}

// claimsOfAnswer reads the claims in a URL's answer.
func claimsOfAnswer(data []byte, now time.Time) (claimed, error) {
	var m map[string]json.RawMessage
	var c claimed
	if err := json.Unmarshal(data, &m); err != nil || m == nil {
		return c, errors.New(`its answer is not an object of JSON, which looks like {"user": "7", "subscribe": ["news"]}`)
	}
	if err := c.read(m, "user"); err != nil {
		return c, err
	}
	end, err := token.Seconds(m, "expires")
	if err != nil || end == nil {
		return c, err
	}
	c.expires = *end
	if !now.Before(c.expires) {
		return c, fmt.Errorf("%w: the permission has expired", token.ErrUnauthorized)
	}
	return c, nil
}
