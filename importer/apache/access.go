package apache

import (
	"fmt"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// guard is which clients may come in.
type guard struct {
	closed bool
	access plan.Access
	auth   plan.Auth
	rules  []plan.Rule // whom else rules keep out
	why    string      // what to do about what could not be translated; "" for nothing
	line   *draft.Directive
}

// alike reports whether two rules are for the same requests.
func alike(a plan.Rule) func(plan.Rule) bool {
	return func(b plan.Rule) bool { return a.If.Node().String() == b.If.Node().String() }
}

// need is what a client must have to come in.
type need struct {
	all, none bool
	nets      []string // of these
	not       []string // and of none of these
	envs      []string // with none of these variables
	user      bool
	either    bool // an address or a user is enough
	bad       *draft.Directive
	why       string
}

func (n need) open() bool { return n.all && len(n.not) == 0 && len(n.envs) == 0 }

// requires are the directives of mod_authz_core, orders those of mod_access_compat. Each
// module takes its own from the last layer that has any.
func requires() []string {
	return []string{"require", "requireall", "requireany", "requirenone"}
}
func orders() []string { return []string{"order", "allow", "deny", "satisfy"} }

// guards reports whether lines restrict who may come in.
func guards(list []*draft.Directive) bool {
	return slices.ContainsFunc(list, func(d *draft.Directive) bool {
		name := lower(d)
		return slices.Contains(requires(), name) || slices.Contains(orders(), name) || name == "limit" || name == "limitexcept" || strings.HasPrefix(name, "auth") && name != "authname"
	})
}

// withLimits are lines in which a <Limit> for GET is replaced by the lines in it.
func (t *site) withLimits(list []*draft.Directive) (lines []*draft.Directive) {
	for _, d := range list {
		if lower(d) == "limit" && slices.Contains(d.Args, "GET") {
			t.im.Standard(d, "who is kept out is so for all methods")
			lines = append(lines, t.im.flat(d.Block)...)
			continue
		}
		lines = append(lines, d)
	}
	return lines
}

// wider is a <Limit> for GET that lets in clients whom the lines for all methods keep out;
// nil if there is none.
func (t *site) wider(layers []layer) *draft.Directive {
	var bare []layer
	var found []*draft.Directive
	for _, l := range layers {
		var list []*draft.Directive
		for _, d := range l.list {
			if lower(d) == "limit" && slices.Contains(d.Args, "GET") {
				found = append(found, d)
			} else {
				list = append(list, d)
			}
		}
		bare = append(bare, layer{list: list})
	}
	if len(found) == 0 || t.guardOf(bare).open() {
		return nil
	}
	for _, d := range found {
		if !t.guardOf([]layer{{list: t.im.flat(d.Block)}}).closed {
			return d
		}
	}
	return nil
}

// open reports whether everybody is let in.
func (g guard) open() bool {
	return !g.closed && g.access.None() && g.auth.None() && len(g.rules) == 0 && g.why == ""
}

// guardOf merges what layers say about who may come in.
func (t *site) guardOf(layers []layer) (g guard) {
	var require, order []*draft.Directive
	var limits []*draft.Directive
	var merging *draft.Directive // puts lines of a folder and those around it together
	for _, l := range layers {
		list := t.withLimits(l.list)
		if r := allIn([]layer{{list: list}}, requires()...); len(r) > 0 {
			if m := lastIn([]layer{{list: list}}, "authmerging"); m != nil && !strings.EqualFold(m.Arg(0), "off") && len(require) > 0 {
				merging = m
			}
			t.nearer(require)
			require = r
		}
		if o := allIn([]layer{{list: list}}, orders()...); len(o) > 0 {
			t.nearer(order)
			order = o
		}
		limits = append(limits, allIn([]layer{{list: list}}, "limit", "limitexcept")...)
	}
	for _, d := range limits {
		t.limit(&g, d)
	}
	if merging != nil {
		g.closed, g.line, g.why = true, merging, "write access and auth by hand: what a folder and those around it ask is not put together"
		return g
	}
	if d := t.wider(layers); d != nil {
		g.closed, g.line, g.why = true, d, "write access and auth by hand: who is let in for some methods alone would be for all"
		return g
	}
	n := t.orderNeed(order)
	if len(require) > 0 {
		n = combine(n, t.anyOf(require), strings.EqualFold(lastArg(order, "satisfy"), "any"))
	}
	if n.bad != nil {
		g.closed, g.line, g.why = true, n.bad, n.why
		if n.bad.File == "" { // of two lines
			g.line = lastIn([]layer{{list: order}, {list: require}}, append(requires(), orders()...)...)
		}
		return g
	}
	if n.none {
		g.closed = true
		return g
	}
	if len(n.nets)+len(n.not) > 0 && (!n.either || !n.user) {
		g.access = plan.Access{Allow: n.nets, Deny: n.not}
	}
	if n.user {
		t.password(&g, layers, n)
	}
	for _, env := range n.envs {
		t.withoutVariable(&g, env, layers)
	}
	return g
}

// nearer marks lines that those of a nearer layer override.
func (t *site) nearer(list []*draft.Directive) {
	for _, d := range list {
		t.im.Standard(d, "what is nearer to the site's folders says who may come in")
	}
}

func lastArg(list []*draft.Directive, name string) string {
	d := lastIn([]layer{{list: list}}, name)
	if d == nil {
		return ""
	}
	return d.Arg(0)
}

// limit translates <Limit> and <LimitExcept>: who may come in with some methods.
func (t *site) limit(g *guard, d *draft.Directive) {
	inner := t.guardOf([]layer{{list: t.im.flat(d.Block)}})
	t.im.Whole(d, draft.Translated, "")
	if !inner.closed {
		if inner.access.None() && inner.auth.None() && inner.why == "" {
			return
		}
		t.im.Leave(d, "these methods are denied to everybody: write a rule with method and a route with access or auth")
	}
	methods := slices.Clone(d.Args)
	if lower(d) == "limitexcept" {
		if slices.Contains(methods, "GET") && !slices.Contains(methods, "HEAD") {
			methods = append(methods, "HEAD")
		}
		for i := range methods {
			methods[i] = "!" + methods[i]
		}
	}
	g.rules = append(g.rules, plan.Rule{If: plan.Cond{Method: methods}, Do: plan.Deny(403), Note: d.At() + ": " + d.String()})
}

// orderNeed reads Order, Allow and Deny.
func (t *site) orderNeed(list []*draft.Directive) need {
	if len(allIn([]layer{{list: list}}, "order", "allow", "deny")) == 0 {
		t.im.Used(list...)
		return need{all: true}
	}
	allowFirst := false
	switch strings.ToLower(strings.Join(orderArgs(list), "")) {
	case "", "deny,allow":
	case "allow,deny", "mutual-failure":
		allowFirst = true
	default:
		return need{bad: lastIn([]layer{{list: list}}, "order"), why: "Apache knows no such order: write access with allow and deny"}
	}
	var allow, deny []string
	var allowEnv, denyEnv []string
	allowAll, denyAll := false, false
	for _, d := range list {
		t.im.Used(d)
		name := lower(d)
		if name != "allow" && name != "deny" {
			continue
		}
		for _, who := range d.Args[min(1, len(d.Args)):] {
			env, isEnv := strings.CutPrefix(strings.ToLower(who), "env=")
			net, err := plan.Network(who)
			switch {
			case strings.EqualFold(who, "all") && name == "allow":
				allowAll = true
			case strings.EqualFold(who, "all"):
				denyAll = true
			case isEnv && name == "deny":
				denyEnv = append(denyEnv, env)
			case isEnv:
				allowEnv = append(allowEnv, env)
			case err != nil && name == "allow":
				t.im.Leave(d, fmt.Sprintf("addresses are looked at, not names: %q is not let in; list its addresses", who))
			case err != nil:
				return need{bad: d, why: fmt.Sprintf("addresses are looked at, not names: list those of %q", who)}
			case name == "allow":
				allow = append(allow, net)
			default:
				deny = append(deny, net)
			}
		}
		if len(allowEnv) > 0 && name == "allow" {
			t.im.Leave(d, "variables let nobody in: write a rule with the condition, and a route for it")
		}
	}
	if allowFirst { // who is allowed and not denied; nobody else
		switch {
		case denyAll, !allowAll && len(allow) == 0:
			return need{none: true}
		case allowAll:
			return need{all: true, not: deny, envs: denyEnv}
		}
		return need{nets: allow, not: deny, envs: denyEnv}
	}
	switch { // who is not denied, or allowed
	case allowAll:
		return need{all: true}
	case denyAll && len(allow) == 0:
		return need{none: true}
	case denyAll:
		return need{nets: allow}
	case len(allow) > 0 && len(deny)+len(denyEnv) > 0:
		return need{bad: list[0], why: "write access with allow and deny: what is denied goes before what is allowed here"}
	}
	return need{all: true, not: deny, envs: denyEnv}
}

func orderArgs(list []*draft.Directive) []string {
	if d := lastIn([]layer{{list: list}}, "order"); d != nil {
		return d.Args
	}
	return nil
}

// anyOf is the need of Require lines of which one is enough.
func (t *site) anyOf(list []*draft.Directive) (n need) {
	n.none = true
	for _, d := range list {
		one := t.one(d)
		switch {
		case one.bad != nil:
			if n.bad == nil && one.why != "" {
				n.bad, n.why = one.bad, one.why
			}
		case one.open():
			return need{all: true}
		case one.none:
		case n.none:
			n = one
		case len(one.not)+len(one.envs)+len(n.not)+len(n.envs) > 0 || one.user && len(one.nets) > 0 && !one.either:
			return need{bad: d, why: "write access and auth by hand: conditions within conditions are not carried over"}
		default:
			n.nets = append(n.nets, one.nets...)
			n.either = n.either || n.user != one.user || one.either
			n.user = n.user || one.user
		}
	}
	return n
}

// allOf is the need of the lines within RequireAll: all of them must hold.
func (t *site) allOf(list []*draft.Directive) need {
	n := need{all: true}
	for _, d := range list {
		if strings.EqualFold(d.Arg(0), "not") && lower(d) == "require" {
			one := t.one(&draft.Directive{Name: d.Name, Args: d.Args[1:], File: d.File, Line: d.Line})
			t.im.Used(d)
			switch {
			case len(one.nets) > 0 && !one.user:
				n.not = append(n.not, one.nets...)
			case len(one.envs) > 0:
				n.envs = append(n.envs, one.envs...)
			default:
				return need{bad: d, why: "write whom it keeps out as a rule (docs/routes.md)"}
			}
			continue
		}
		if lower(d) == "requirenone" {
			t.im.Used(d)
			one := t.anyOf(t.im.flat(d.Block))
			if one.bad != nil || one.user || len(one.nets) == 0 {
				return need{bad: d, why: "write whom it keeps out as a rule (docs/routes.md)"}
			}
			n.not = append(n.not, one.nets...)
			continue
		}
		n = combine(n, t.one(d), false)
	}
	return n
}

// combine joins two needs: both must be met, or either.
func combine(a, b need, either bool) need {
	switch {
	case a.bad != nil:
		return a
	case b.bad != nil:
		return b
	case either && a.none:
		return b
	case either && b.none:
		return a
	case either && b.open():
		return b
	case either && a.open():
		return b // without a line of its own, Apache lets everybody in: a password is asked all the same
	case a.none || b.none:
		return need{none: true}
	case a.open():
		return b
	case b.open():
		return a
	case len(a.nets) > 0 && len(b.nets) > 0 && !slices.Equal(a.nets, b.nets), a.either || b.either, either && len(a.not)+len(b.not) > 0:
		return need{bad: &draft.Directive{Name: "Require"}, why: "write access and auth by hand: two lists of addresses are not put together"}
	}
	n := need{all: a.all && b.all, user: a.user || b.user, either: either, not: draft.Unique(append(slices.Clone(a.not), b.not...)), envs: draft.Unique(append(slices.Clone(a.envs), b.envs...))}
	n.nets = draft.Unique(append(slices.Clone(a.nets), b.nets...))
	return n
}

// one is the need of one line, or of a block of them.
func (t *site) one(d *draft.Directive) need {
	t.im.Used(d)
	switch lower(d) {
	case "requireany":
		return t.anyOf(t.im.flat(d.Block))
	case "requireall":
		return t.allOf(t.im.flat(d.Block))
	case "requirenone":
		return need{bad: d, why: "write whom it keeps out as a rule (docs/routes.md)"}
	}
	bad := func(why string) need { return need{bad: d, why: why} }
	switch kind := strings.ToLower(d.Arg(0)); kind {
	case "all":
		return need{all: strings.EqualFold(d.Arg(1), "granted"), none: !strings.EqualFold(d.Arg(1), "granted")}
	case "ip":
		var nets []string
		for _, text := range d.Args[1:] {
			n, err := plan.Network(text)
			if err != nil {
				return bad(err.Error())
			}
			nets = append(nets, n)
		}
		return need{nets: nets, none: len(nets) == 0}
	case "local":
		return need{nets: []string{"127.0.0.0/8", "::1", "unix"}}
	case "valid-user":
		return need{user: true}
	case "env":
		return need{bad: d, envs: []string{strings.ToLower(d.Arg(1))}, why: "variables let nobody in: write a rule with the condition, and a route for it"}
	case "user", "group", "file-owner", "file-group":
		return bad("a file of passwords lets in all of its users: put those that are meant into a file of their own, for auth.file")
	case "host", "forward-dns":
		return bad("addresses are looked at, not names: list those that are let in")
	case "expr":
		return bad("write the condition as a rule (docs/routes.md)")
	default:
		return bad("there is no counterpart: write access or auth (docs/protection.md)")
	}
}

// password translates Basic authentication.
func (t *site) password(g *guard, layers []layer, n need) {
	kind, file := lastIn(layers, "authtype"), lastIn(layers, "authuserfile")
	provider, name := lastIn(layers, "authbasicprovider"), lastIn(layers, "authname")
	g.line = lastIn(layers, requires()...)
	switch {
	case kind == nil || !strings.EqualFold(kind.Arg(0), "basic"):
		g.closed, g.why = true, "clients sign in by auth: passwords, tokens, or another server's leave (docs/protection.md)"
		if kind != nil {
			g.line = kind
		}
		return
	case provider != nil && !slices.Equal(provider.Args, []string{"file"}):
		g.closed, g.why, g.line = true, "passwords are in a file (auth.file): for others let another server decide (auth.url)", provider
		return
	case file == nil:
		g.closed, g.why = true, "name a file of passwords in auth.file"
		return
	}
	t.im.Used(kind, file, provider, name)
	g.auth = plan.Auth{File: t.im.file(file.Arg(0))}
	if name != nil {
		g.auth.Realm = name.Arg(0)
	}
	if n.either {
		g.auth.Except = n.nets
	}
}
