package admit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"millrace/internal/access/challenge"
	"millrace/internal/wire/netset"
	"millrace/internal/wire/urlpath"
)

// Challenge asks clients that look like crawlers for a proof: some work of the
// browser's own (SHA-256), or, without scripts, a wait and a press of a button. Who
// brings it gets a signed cookie. Nobody else is asked; robots.txt and what lies
// below /.well-known/ never are.
type Challenge struct {
	// Agents are parts of User-Agent fields, in any letter case: whose has one is
	// asked. "none" stands for requests without the field.
	Agents []string `yaml:"agents"`
	// Networks are addresses and networks whose clients are asked.
	Networks []string `yaml:"networks"`
	// Over is a rate, 5/s for example: who asks more often is asked, with 429.
	// A rate_limit holds besides, and for those with a proof.
	Over string `yaml:"over"`
	// ExceptAgents are parts of User-Agent fields that are never asked. Everybody
	// can send them: where it is known where a robot comes from, use Except.
	ExceptAgents []string `yaml:"except_agents"`
	// Except are addresses and networks that are never asked.
	Except []string `yaml:"except"`
	// Work is how many zero bits the hash must begin with: each one more doubles the
	// work. Default 16, some tenths of a second; from 8 to 24.
	Work int `yaml:"work"`
	// Wait is how long clients without scripts wait. Default 5s, at most 1m.
	Wait time.Duration `yaml:"wait"`
	// For is how long a proof is good for. Default 12h, at most 720h.
	For time.Duration `yaml:"for"`
	// Secret signs the proofs, at least 16 characters: the same on all machines that
	// serve a site. Without one each start makes its own, and clients are asked again.
	Secret string `yaml:"secret"`
	// Off asks nobody, on a route of a site that does.
	Off bool `yaml:"off"`
}

// Why clients are asked; also in the names of cookies.
const (
	whyAgent   = "agent"
	whyNetwork = "network"
	whyRate    = "rate"
)

const (
	defaultWork   = 16
	defaultWait   = 5 * time.Second
	defaultProof  = 12 * time.Hour
	noAgent       = "none"
	maxAgents     = 1000 // patterns: a new User-Agent is compared with each
	maxAgentBytes = 512  // of a User-Agent that are looked at
	knownAgents   = 1 << 11
)

// terms are those of proofs for a site, with the defaults.
func (o Challenge) terms(secret []byte, site string) challenge.Terms {
	t := challenge.Terms{Secret: secret, Site: site, Work: o.Work, Wait: o.Wait, Lasts: o.For}
	if o.Secret != "" {
		t.Secret = []byte(o.Secret)
	}
	t.Work = cmp.Or(t.Work, defaultWork)
	t.Wait = cmp.Or(t.Wait, defaultWait)
	t.Lasts = cmp.Or(t.Lasts, defaultProof)
	return t
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Challenge) Check() map[string]error {
	suspects := len(o.Agents)+len(o.Networks) > 0 || o.Over != ""
	faults := o.terms(nil, "").Check()
	switch {
	case o.Off && suspects:
		faults["off"] = errors.New("off stands alone")
	case !o.Off && !suspects:
		faults["agents"] = errors.New("nobody would be asked: challenge needs agents, networks or over")
	}
	for key, list := range map[string][]string{"networks": o.Networks, "except": o.Except} {
		if _, err := netset.Parse(list); err != nil {
			faults[key] = err
		}
	}
	for key, list := range map[string][]string{"agents": o.Agents, "except_agents": o.ExceptAgents} {
		if len(list) > maxAgents {
			faults[key] = fmt.Errorf("%d are too many: at most %d", len(list), maxAgents)
		}
		for i, part := range list {
			if strings.TrimSpace(part) == "" || len(part) > maxAgentBytes {
				faults[fmt.Sprintf("%s[%d]", key, i)] = fmt.Errorf("%q is no part of a User-Agent: write one like GPTBot, or none for requests without", part)
			}
		}
	}
	if o.Over != "" {
		if _, _, err := (Rate{Rate: o.Over}).parse(); err != nil {
			faults["over"] = err
		}
	}
	return faults
}

// Suspects are a Challenge in force. It is safe for concurrent use.
type Suspects struct {
	asks     *challenge.Challenge
	agents   *agents // nil: none are asked
	networks netset.Set
	over     *Limit // nil: none
	except   netset.Set
}

// Suspects puts a challenge of a site into force. secret signs where the options have
// none; key is that of its limit.
func (t *Table) Suspects(o Challenge, secret []byte, site, key string) (*Suspects, error) {
	for name, err := range o.Check() {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s := &Suspects{asks: challenge.New(o.terms(secret, site))}
	var err error
	if s.networks, err = netset.Parse(o.Networks); err != nil {
		return nil, fmt.Errorf("networks: %w", err)
	}
	if s.except, err = netset.Parse(o.Except); err != nil {
		return nil, fmt.Errorf("except: %w", err)
	}
	if o.Over != "" {
		if s.over, err = t.Limit(Rate{Rate: o.Over}, "challenge "+key); err != nil {
			return nil, fmt.Errorf("over: %w", err)
		}
	}
	if len(o.Agents)+len(o.ExceptAgents) > 0 {
		s.agents = newAgents(o)
	}
	return s, nil
}

// why a request is asked for a proof, "" if it is not.
func (s *Suspects) why(q *Request) string {
	if s == nil || !s.except.Empty() && s.except.Has(q.Client) {
		return ""
	}
	if s.agents != nil {
		switch s.agents.about(q.Agent) {
		case agentGood:
			return ""
		case agentSuspect:
			if !s.proved(q, whyAgent) {
				return whyAgent
			}
		}
	}
	if !s.networks.Empty() && s.networks.Has(q.Client) && !s.proved(q, whyNetwork) {
		return whyNetwork
	}
	if s.over != nil && s.over.take(q.Client, q.Now, nil) > 0 && !s.proved(q, whyRate) {
		return whyRate
	}
	return ""
}

// Asks reports whether clients are asked for their User-Agent alone.
func (s *Suspects) Asks(agent string) bool {
	return s.agents != nil && s.agents.about([]byte(agent)) == agentSuspect
}

func (s *Suspects) proved(q *Request, why string) bool {
	return len(q.cookies) > 0 && s.asks.Passed(q.cookies, why, q.Client, q.Now)
}

// What is known of a User-Agent.
const (
	agentOther   = iota // nothing is said of it
	agentSuspect        // asked
	agentGood           // never asked
	agentBits    = 2
)

// agents compares User-Agent fields with parts of them. Most requests have one of a
// few values, so what came out is remembered: places of one word each, the field's
// hash with what is known of it. The seed is nobody's to know.
type agents struct {
	suspect, good [][]byte // in lower case
	without       bool     // requests without the field are suspect
	seed          maphash.Seed
	known         [knownAgents]atomic.Uint64
}

func newAgents(o Challenge) *agents {
	a := &agents{seed: maphash.MakeSeed()}
	for _, part := range o.Agents {
		if part == noAgent {
			a.without = true
			continue
		}
		a.suspect = append(a.suspect, []byte(strings.ToLower(part)))
	}
	for _, part := range o.ExceptAgents {
		a.good = append(a.good, []byte(strings.ToLower(part)))
	}
	return a
}

// about is what is known of a User-Agent.
func (a *agents) about(agent []byte) int {
	if len(agent) == 0 {
		if a.without {
			return agentSuspect
		}
		return agentOther
	}
	agent = agent[:min(len(agent), maxAgentBytes)]
	hash := maphash.Bytes(a.seed, agent)
	place := &a.known[hash%knownAgents]
	if word := place.Load(); word>>agentBits == hash>>agentBits && word != 0 {
		return int(word & (1<<agentBits - 1))
	}
	what := a.compare(agent)
	place.Store(hash>>agentBits<<agentBits | uint64(what))
	return what
}

func (a *agents) compare(agent []byte) int {
	lower := bytes.ToLower(agent)
	for _, part := range a.good {
		if bytes.Contains(lower, part) {
			return agentGood
		}
	}
	for _, part := range a.suspect {
		if bytes.Contains(lower, part) {
			return agentSuspect
		}
	}
	return agentOther
}

// never are the paths at which nobody is asked: robots read there what they may
// not do, and certificates and apps are proved there. None of them can be taken for
// another path by whatever server is behind this one.
func never(path, raw string) bool {
	return (path == "/robots.txt" || strings.HasPrefix(path, "/.well-known/")) && raw == "" && urlpath.Plain(path)
}
