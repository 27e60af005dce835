package nginx

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// access translates allow and deny; closed: nobody may come in. nginx takes the first line
// that matches an address. The access of a route says the same as long as denied
// networks come before allowed ones; else rules are written.
func (t *site) access(l *location) (access plan.Access, closed bool) {
	list := l.all("allow", "deny")
	byRules := false
	for _, d := range list {
		address := network(d.Arg(0))
		t.im.Used(d)
		switch {
		case address == "all" && d.Name == "deny" && len(access.Allow) == 0:
			return plan.Access{}, true
		case address == "all" && d.Name == "deny":
			return t.byRules(l, list, access, byRules), false
		case address == "all":
			access.Allow = nil
			return t.byRules(l, list, access, byRules), false
		case d.Name == "allow":
			access.Allow = append(access.Allow, address)
		default:
			byRules = byRules || len(access.Allow) > 0
			access.Deny = append(access.Deny, address)
		}
	}
	access.Allow = nil
	return t.byRules(l, list, access, byRules), false
}

// network is an address, or a network with its host bits cleared.
func network(text string) string {
	if text == "unix:" {
		return "unix"
	}
	if n, err := plan.Network(text); err == nil {
		return n
	}
	return text
}

// byRules writes rules instead of the access of a route where they are needed.
func (t *site) byRules(l *location, list []*draft.Directive, access plan.Access, needed bool) plan.Access {
	if !needed {
		return access
	}
	t.accessRules(l, list)
	return plan.Access{}
}

// accessRules writes lists in which an exception comes first, as rules: "allow 10.0.0.1;
// deny 10.0.0.0/8; allow all".
func (t *site) accessRules(l *location, list []*draft.Directive) {
	var allowed []string
	for _, d := range list {
		address := network(d.Arg(0))
		switch {
		case address == "unix":
			t.im.Leave(d, "rules are for no clients of UNIX sockets")
			continue
		case d.Name == "allow" && address == "all":
			return
		case d.Name == "allow":
			allowed = append(allowed, "!"+address)
			continue
		}
		c := l.match()
		if c.Address = slices.Clone(allowed); address != "all" {
			c.Address = append([]string{address}, allowed...)
		}
		l.add(c, plan.Deny(403), d.At())
		if address == "all" {
			return
		}
	}
}

// rateLimit translates limit_req.
func (t *site) rateLimit(l *location, r *plan.Route) {
	limits := l.all("limit_req")
	for i, d := range limits {
		if i > 0 {
			t.im.Leave(d, "a route has one rate_limit, beside that of its site")
			continue
		}
		limit, err := t.limitOf(d)
		if err != "" {
			t.im.Leave(d, err)
			continue
		}
		t.im.Used(d)
		r.Limit = limit
	}
	if d := l.last("limit_req_status"); d != nil && len(limits) > 0 {
		t.im.Standard(d, "who asks too often gets 429 with Retry-After")
	}
}

// limitOf is one limit, or what to do instead.
func (t *site) limitOf(d *draft.Directive) (plan.Limit, string) {
	zone, burst := "", 0
	for _, w := range d.Words() {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "zone":
			zone = value
		case "burst":
			burst, _ = strconv.Atoi(value) // 0 is the default
		}
	}
	for _, z := range t.server.parent.each("limit_req_zone") {
		if !strings.Contains(z.String()+" ", "zone="+zone+":") {
			continue
		}
		rate := regexp.MustCompile(`rate=(\d+)r/([sm])`).FindStringSubmatch(z.String())
		if rate == nil {
			break
		}
		limit := plan.Limit{Rate: rate[1] + "/" + rate[2], Burst: burst + 1}
		switch key := z.Arg(0); {
		case key == "$binary_remote_addr" || key == "$remote_addr":
		case key == "$server_name" || !strings.Contains(key, "$"):
			limit.By = "route"
		case strings.HasPrefix(key, "$http_"):
			limit.Header = headerName(key[len("$http_"):])
		default:
			return plan.Limit{}, "write a rate_limit (docs/protection.md): it counts by address, by header, or all clients of a route, and not by " + key
		}
		t.im.Used(z)
		return limit, ""
	}
	return plan.Limit{}, "write a rate_limit (docs/protection.md): its zone is not to be found"
}
