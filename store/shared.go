package store

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
)

// Shared is where several machines have something in common.
type Shared struct {
	// URL is that of a Redis or Valkey, as in redis://[user:password@]host:6379. Of a
	// master and its replicas name the Sentinels:
	// redis-sentinel://host:26379,host:26379?master=NAME.
	URL string `yaml:"url"`
	// Prefix begins all keys in Redis, as in shop, so that several sites can use one.
	// Default millrace. In the url it is ?prefix=shop.
	Prefix string `yaml:"prefix"`
}

// UnmarshalText lets a config say "shared: redis://host:6379".
func (s *Shared) UnmarshalText(text []byte) error {
	s.URL = string(text)
	return nil
}

// UnmarshalJSON reads what package json has written of it, as in the plan of a packed site.
func (s *Shared) UnmarshalJSON(text []byte) error {
	type fields Shared // without UnmarshalText
	return json.Unmarshal(text, (*fields)(s))
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (s Shared) Check() map[string]error {
	if s.Prefix == "" {
		return nil
	}
	u, _, _ := strings.Cut(s.URL, "#")
	_, query, _ := strings.Cut(u, "?")
	values, _ := url.ParseQuery(query) // who opens the URL says what is wrong with it
	switch {
	case s.URL == "":
		return map[string]error{"prefix": errors.New("a prefix, but no \"url\" of a Redis: add url: redis://host:6379")}
	case strings.HasPrefix(s.URL, "s3"):
		return map[string]error{"prefix": errors.New("a prefix is for Redis: that of a bucket stands in its URL, as in s3://host/bucket/prefix")}
	case values.Has("prefix"):
		return map[string]error{"prefix": errors.New("the URL has a prefix, too: keep one")}
	}
	return nil
}

// Address is the URL with the prefix in it.
func (s Shared) Address() string {
	if s.Prefix == "" {
		return s.URL
	}
	separator := "?"
	if strings.Contains(s.URL, "?") {
		separator = "&"
	}
	return s.URL + separator + "prefix=" + url.QueryEscape(s.Prefix)
}
