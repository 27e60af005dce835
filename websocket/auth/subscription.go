package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"millrace/internal/access/token"
	"millrace/store/bus"
)

// Given is a subscription that the server makes for a client that connects: it is
// named in the client's token, by the claims channels and subs.
type Given struct {
	Channel string
	Info    []byte // what others see of the client in this channel, beside Grant.Info
	Data    []byte // for the client itself
}

// Subscription is what a token of its own says of one subscription: the user of sub
// may subscribe to channel.
type Subscription struct {
	User    string
	Channel string
	Info    []byte    // as Given.Info
	Expires time.Time // as Grant.Expires
}

// TTL is in how many seconds a client should have a new token; ok is false where the
// grant does not end, or is not a token's. It is before Grant.Expires by the leeway
// for clocks.
func (g *Grant) TTL(now time.Time) (seconds uint32, ok bool) {
	return ttl(g.Expires, now), g.renewable && !g.Expires.IsZero()
}

// TTL is as Grant.TTL.
func (s *Subscription) TTL(now time.Time) (seconds uint32, ok bool) {
	return ttl(s.Expires, now), !s.Expires.IsZero()
}

// ttl is at least a second: 0 would be never.
func ttl(expires, now time.Time) uint32 {
	return uint32(max(1, int64(expires.Sub(now)-token.Leeway)/int64(time.Second)))
}

// Subscription reads a token for one subscription. As [Checker.Token] it does not
// block. The caller compares user and channel.
func (c *Checker) Subscription(t string) (*Subscription, error) {
	if c.tokens == nil {
		return nil, fmt.Errorf("%w: tokens are not used here", token.ErrUnauthorized)
	}
	claims, err := c.tokens.Check(t)
	if err != nil {
		return nil, err
	}
	s := &Subscription{User: claims.Subject, Expires: claims.Expires}
	err = errors.Join(token.Text(claims.Members, "channel", &s.Channel), until(claims.Members, &s.Expires))
	if err == nil {
		s.Info, err = oneLine(claims.Members["info"], "info")
	}
	if err == nil && s.Channel == "" {
		err = errors.New("it names no channel: is it the token for the connection?")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the token cannot be read: %w", token.ErrUnauthorized, err)
	}
	return s, nil
}

// forConnection refuses a token for one subscription: who has one may not come in with it.
func forConnection(m map[string]json.RawMessage) error {
	var channel string
	if json.Unmarshal(m["channel"], &channel) == nil && channel != "" {
		return errors.New("it is for one subscription, since it has a channel")
	}
	return nil
}

// until reads expire_at, which says when a grant ends if that is not when its token
// does; 0 is never.
func until(m map[string]json.RawMessage, expires *time.Time) error {
	at, err := token.Seconds(m, "expire_at")
	if err != nil || at == nil {
		return err
	}
	*expires = time.Time{}
	if at.Unix() > 0 {
		*expires = at.Add(token.Leeway)
	}
	return nil
}

// givenJSON is a Given as subs has it.
type givenJSON struct {
	Info json.RawMessage `json:"info"`
	Data json.RawMessage `json:"data"`
}

// given reads channels, a list of names, and subs, an object of them.
func given(m map[string]json.RawMessage) ([]Given, error) {
	var names []string
	if raw, ok := m["channels"]; ok && json.Unmarshal(raw, &names) != nil {
		return nil, errors.New(`its channels are not a list of names, which looks like ["news"]`)
	}
	subs := map[string]givenJSON{}
	if raw, ok := m["subs"]; ok && json.Unmarshal(raw, &subs) != nil {
		return nil, errors.New(`its subs are not an object of channels, which looks like {"news": {}}`)
	}
	for _, name := range names {
		if _, there := subs[name]; !there {
			subs[name] = givenJSON{}
		}
	}
	if len(subs) > maxPatterns {
		return nil, fmt.Errorf("it names %d channels: at most %d", len(subs), maxPatterns)
	}
	var list []Given
	for _, name := range slices.Sorted(maps.Keys(subs)) {
		if err := bus.CheckChannel(name); err != nil {
			return nil, fmt.Errorf("one of its channels: %w", err)
		}
		info, err := oneLine(subs[name].Info, "info")
		if err != nil {
			return nil, err
		}
		data, err := oneLine(subs[name].Data, "data")
		if err != nil {
			return nil, err
		}
		list = append(list, Given{name, info, data})
	}
	return list, nil
}

// oneLine is JSON in one line, since it goes into event streams too, and in UTF-8; nil
// if there is none.
func oneLine(raw json.RawMessage, name string) ([]byte, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return nil, fmt.Errorf("its %s: %w", name, err)
	}
	text := bytes.ToValidUTF8(line.Bytes(), []byte(string(utf8.RuneError)))
	if len(text) > maxInfo {
		return nil, fmt.Errorf("its %s has %d bytes: at most %d", name, len(text), maxInfo)
	}
	return text, nil
}
