package field

import (
	"slices"
	"strings"
	"testing"
)

func TestTables(t *testing.T) {
	for which, table := range map[string]*table{"claims": claims, "addresses": addresses, "overrides": overrides, "traces": traces} {
		if !slices.IsSorted(table.names) || !slices.IsSorted(table.prefixes) {
			t.Errorf("%s is searched and not in order", which)
		}
		for _, n := range slices.Concat(table.names, table.prefixes) {
			if Fold(n) != n || !table.have([]byte(n)) {
				t.Errorf("%s: %q is not folded, or not found", which, n)
			}
			for _, other := range []string{n + "x", n[:len(n)-1], n[1:], "x" + n, n[:len(n)-1] + "z", strings.Repeat(n, 20), ""} {
				want := slices.Contains(table.names, other) || slices.ContainsFunc(table.prefixes, func(p string) bool { return strings.HasPrefix(other, p) })
				if got := table.have([]byte(other)); got != want {
					t.Errorf("%s: %q is found: %t", which, other, got)
				}
			}
		}
	}
	for _, n := range slices.Concat(addresses.names, addresses.prefixes) {
		if !Claim(n) {
			t.Errorf("%s is an address and no claim", n)
		}
	}
}

func TestFold(t *testing.T) {
	for name, want := range map[string]string{
		"X-Forwarded-For": "x-forwarded-for", "x_forwarded-FOR": "x-forwarded-for", "X.Forwarded~For": "x-forwarded-for",
		"via": "via", "": "", "X|y^z": "x-y-z", "A1": "a1",
	} {
		if got := Fold(name); got != want {
			t.Errorf("%q folds to %q, want %q", name, got, want)
		}
	}
	if !Plain("X-Forwarded-For1") || Plain("X_Forwarded-For") || Plain("a.b") {
		t.Error("which names are plain")
	}
}

// Every claim, in every spelling that some upstream may take for it.
func TestClaim(t *testing.T) {
	for _, name := range []string{
		"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded", "X-Forward-For",
		"X-Real-Ip", "Client-Ip", "True-Client-Ip", "CF-Connecting-IP", "Fastly-Client-IP", "CloudFront-Viewer-Address", "CloudFront-Forwarded-Proto", "Incap-Client-IP", "X-Original-Forwarded-For",
		"X-Remote-Addr", "X-Scheme", "Front-End-Https", "HTTPS", "X-Cluster-Client-Ip", "X-Client-Ip", "X-Original-Url", "Remote-User", "Client-Cert",
	} {
		for _, spelled := range []string{name, strings.ToUpper(name), strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1)} {
			if !Claim(spelled) || !Trace(spelled) {
				t.Errorf("%s is not a claim", spelled)
			}
		}
	}
	for _, name := range []string{
		"", "Accept", "Via", "Cookie", "Host", "X-Requested-With", "X-Api-Key", "Referer", "X-Request-Id", "Cf-Access-Jwt-Assertion",
		"Content-Type", "User-Agent", "From", "X-Csrf-Token", "Sec-Fetch-Site", "Traceparent", "X-Http-Method-Override",
	} {
		if Claim(name) {
			t.Errorf("%s is a claim", name)
		}
	}
}

func TestTrace(t *testing.T) {
	for _, name := range []string{"Via", "CDN-Loop", "Cf-Ray", "cf_ray", "X-Varnish", "X-Amzn-Trace-Id", "X-Amz-Cf-Id", "Fastly-Ff"} {
		if !Trace(name) {
			t.Errorf("%s is not a trace", name)
		}
	}
	for _, name := range []string{"", "Accept", "Authorization", "Content-Type", "Idempotency-Key", "User-Agent", "Host", "Traceparent"} {
		if Trace(name) {
			t.Errorf("%s is a trace of a proxy", name)
		}
	}
}

func TestAddressAndOverride(t *testing.T) {
	for name, want := range map[string]bool{
		"X-Forwarded-For": true, "X-Real-IP": true, "Cf-Connecting-Ip": true, "X_Remote_Addr": true, "X-Forwarded-Proto": false, "X-Forwarded-Host": false,
		"Front-End-Https": false, "X-Original-URL": false, "Forwarded": false, "Remote-User": false, "Client-Cert": false, "Accept": false,
	} {
		if Address(name) != want {
			t.Errorf("%s is about an address: %v", name, !want)
		}
	}
	for name, want := range map[string]bool{
		"X-HTTP-Method-Override": true, "X_HTTP_Method_Override": true, "x.http.method": true, "X-Rewrite-URL": true, "Http-Method-Override": true,
		"X-Method-Name": false, "Accept": false, "": false, "X-Api-Key": false,
	} {
		if Override(name) != want {
			t.Errorf("%s overrides: %v", name, !want)
		}
	}
}
