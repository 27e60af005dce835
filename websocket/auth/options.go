package auth

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"millrace/internal/access/token"
)

const (
	// defaultTimeout is how long a client waits for its answer before the URL
	// counts as down.
	defaultTimeout = 5 * time.Second
	// maxTimeout keeps clients from piling up behind a URL that hangs.
	maxTimeout = time.Minute
	// maxPatterns bounds what every command has to be compared with.
	maxPatterns = 1000
	// maxPattern is more than any channel's name has.
	maxPattern = 1024
)

// Options say how clients are told apart. At most one of JWT and URL; neither:
// everybody has what anyone may do.
type Options struct {
	// JWT takes signed tokens: from the query (token=…), a header
	// (Authorization: Bearer …), a cookie, or a command of the protocol.
	JWT *token.Options `yaml:"jwt"`
	// URL is asked for every new connection (GET), with the client's Cookie,
	// Authorization and Origin, its address in X-Forwarded-For, what it asked
	// for in X-Original-URI, and its query if the URL has none of its own. 200
	// with {"user": "…", "subscribe": ["news", "user:7:*"], "publish": […],
	// "presence": […], "info": {…}, "expires": seconds since 1970} is a grant,
	// 401 and 403 are refusals.
	URL string `yaml:"url"`
	// Timeout of URL. Default 5s, at most 1m.
	Timeout time.Duration `yaml:"timeout"`
	// Subscribe are patterns of the channels that anyone may subscribe to,
	// without a token: * stands for any characters. Default: all, if there is
	// neither jwt nor url; else none. {sub} stands for the user of the token or
	// of URL's answer: "user:{sub}:*". Who has no name gets nothing from such a
	// pattern, and neither does a user in whose name the character stands that
	// comes before or after {sub}, here the colon: one called "7:private" would
	// get what belongs to 7.
	Subscribe []string `yaml:"subscribe"`
	// Publish are those that anyone may publish to from a browser. Default none.
	Publish []string `yaml:"publish"`
	// Presence are those whose presence anyone may see. Default none.
	Presence []string `yaml:"presence"`
}

// Check returns what is wrong with the options, by key.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	if o.JWT != nil && o.URL != "" {
		faults["url"] = errors.New("clients are known by jwt or by url, not both: leave one of them out")
	} else if o.URL != "" {
		if err := token.CheckURL(o.URL); err != nil {
			faults["url"] = err
		}
	}
	switch {
	case o.Timeout < 0 || o.Timeout > maxTimeout:
		faults["timeout"] = fmt.Errorf("%s is out of range: write at most %s", o.Timeout, maxTimeout)
	case o.Timeout != 0 && o.URL == "":
		faults["timeout"] = errors.New("timeout does nothing without url")
	}
	if o.JWT != nil {
		for key, fault := range o.JWT.Check() {
			faults[strings.TrimSuffix("jwt."+key, ".")] = fault
		}
	}
	named := o.JWT != nil || o.URL != ""
	checkPatterns("subscribe", o.Subscribe, named, faults)
	checkPatterns("publish", o.Publish, named, faults)
	checkPatterns("presence", o.Presence, named, faults)
	return faults
}

func checkPatterns(key string, list []string, named bool, faults map[string]error) {
	if len(list) > maxPatterns {
		faults[key] = fmt.Errorf("%d patterns are too many to look at for every command: at most %d", len(list), maxPatterns)
	}
	for i, p := range list {
		var err error
		switch {
		case p == "":
			err = errors.New("an empty pattern matches no channel: write a name, or * for all")
		case len(p) > maxPattern:
			err = fmt.Errorf("a pattern of %d bytes is too long: at most %d", len(p), maxPattern)
		case !strings.Contains(p, placeholder):
		case !named:
			err = fmt.Errorf("nobody has a name that %s could stand for: add jwt or url", placeholder)
		case glued(p):
			err = fmt.Errorf("in %q nothing tells where the name of %s ends: put a character between, as in user:%s:*", p, placeholder, placeholder)
		}
		if err != nil {
			faults[fmt.Sprintf("%s[%d]", key, i)] = err
		}
	}
}

// glued reports whether a wildcard or another placeholder stands directly
// beside a placeholder: a user called 7 would be one called 71 as well.
func glued(p string) bool {
	for _, with := range []string{"*" + placeholder, placeholder + "*", placeholder + placeholder} {
		if strings.Contains(p, with) {
			return true
		}
	}
	return false
}

func (o Options) timeout() time.Duration {
	if o.Timeout == 0 {
		return defaultTimeout
	}
	return o.Timeout
}

func (o Options) rights() rights {
	subscribe := o.Subscribe
	if len(subscribe) == 0 && o.JWT == nil && o.URL == "" {
		subscribe = []string{"*"}
	}
	return rights{subscribe: newRight(subscribe), publish: newRight(o.Publish), presence: newRight(o.Presence)}
}
