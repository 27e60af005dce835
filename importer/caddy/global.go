package caddy

import (
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// global translates an option of the block without a name.
func (im *importer) global(d *draft.Directive) {
	if im.reported("global", d) {
		return
	}
	im.Used(d)
	switch d.Name {
	case "http_port":
		im.httpPort = d.Arg(0)
	case "https_port":
		im.httpsPort = d.Arg(0)
	case "email":
		im.issuers.Set("email", draft.Text(d.Arg(0)))
	case "acme_ca":
		ca := d.Arg(0)
		if strings.Contains(ca, "acme-staging-v02.api.letsencrypt.org") {
			ca = "letsencrypt-staging"
		}
		im.issuers.Set("ca", draft.Text(ca))
	case "acme_ca_root":
		im.issuers.Set("ca_roots", draft.Text(im.path(d.Arg(0))))
	case "acme_eab":
		im.externalAccount(d)
	case "local_certs":
		im.internal = true
	case "auto_https":
		im.auto = d.Arg(0)
	case "on_demand_tls":
		im.onDemand(d)
	case "admin":
		im.Whole(d, draft.Defaulted, "the admin listener is a socket of its own: admin.listen")
		if d.Arg(0) == "off" {
			im.root.Set("admin", draft.Map().Set("listen", draft.Text("off")).Flow())
		}
	case "grace_period", "shutdown_delay":
		if v, ok := duration(d.Arg(0)); ok && d.Name == "grace_period" {
			im.limits.Set("drain_timeout", draft.Text(v))
		}
	case "servers":
		for _, b := range d.Block {
			im.serverOption(b)
		}
	default:
		im.Leave(d, "nothing is known about this option: see docs/config.md")
	}
}

func (im *importer) externalAccount(d *draft.Directive) {
	account := draft.Map()
	for _, b := range d.Block {
		im.Used(b)
		switch b.Name {
		case "key_id":
			account.Set("id", draft.Text(b.Arg(0)))
		case "mac_key":
			account.Set("secret", draft.Text(b.Arg(0)))
		}
	}
	im.issuers.Set("external_account", account.Flow())
}

func (im *importer) onDemand(d *draft.Directive) {
	for _, b := range d.Block {
		switch {
		case im.reported("on_demand_tls", b):
		case b.Name == "ask":
			im.Used(b)
			im.issuers.Set("on_demand", draft.Map().Set("ask", draft.Text(b.Arg(0))).Flow())
		default:
			im.Leave(b, "tls.auto.on_demand.ask is a URL that is asked (docs/tls.md)")
		}
	}
}

// serverOption translates a line of servers.
func (im *importer) serverOption(b *draft.Directive) {
	if im.reported("servers", b) {
		return
	}
	im.Used(b)
	switch b.Name {
	case "trusted_proxies":
		list, err := networks(b.Args[min(1, len(b.Args)):])
		if b.Arg(0) != "static" || err != nil {
			im.Leave(b, "list the addresses of the proxies in limits.trusted_proxies")
			return
		}
		im.limits.Set("trusted_proxies", draft.Texts(list...))
	case "client_ip_headers":
		if len(b.Args) == 1 {
			im.limits.Set("client_header", draft.Text(b.Arg(0)))
			return
		}
		im.Leave(b, "limits.client_header is one field")
	case "protocols":
		im.noHTTP3 = !slices.Contains(b.Args, "h3")
	case "timeouts":
		for _, e := range b.Block {
			im.Used(e)
			key := map[string]string{"read_header": "header_timeout", "read_body": "body_timeout", "write": "write_timeout", "idle": "idle_timeout"}[e.Name]
			if v, ok := duration(e.Arg(0)); ok && key != "" {
				im.limits.Set(key, draft.Text(v))
			} else {
				im.Leave(e, "set a time in limits (docs/config.md)")
			}
		}
	case "max_header_size":
		if v, ok := bytes(b.Arg(0)); ok {
			im.limits.Set("header_bytes", draft.Number(v))
			return
		}
		im.Leave(b, "set limits.header_bytes")
	default:
		im.Leave(b, "nothing is known about this option: see docs/config.md")
	}
}

// certificates translates tls of a site.
func (im *importer) certificates(b *block, d *draft.Directive) {
	im.Used(d)
	switch {
	case len(d.Args) == 2:
		b.Certificates = []plan.Pair{{Chain: im.path(d.Arg(0)), Key: im.path(d.Arg(1))}}
	case d.Arg(0) == "internal":
		im.internal = true
	case len(d.Args) == 1 && d.Arg(0) != "force_automate":
		im.issuers.Set("email", draft.Text(d.Arg(0)))
	}
	for _, e := range d.Block {
		if im.reported("tls", e) {
			continue
		}
		im.Used(e)
		switch e.Name {
		case "protocols":
			if e.Arg(0) == "tls1.3" {
				b.MinVersion = "1.3"
			}
		case "client_auth":
			im.clientAuth(b, e)
		case "on_demand":
			if im.issuers.Get("on_demand") == nil {
				im.Leave(e, "tls.auto.on_demand.ask is a URL that says which names may have a certificate")
			}
		case "ca":
			im.issuers.Set("ca", draft.Text(e.Arg(0)))
		case "ca_root":
			im.issuers.Set("ca_roots", draft.Text(im.path(e.Arg(0))))
		default:
			im.Leave(e, "tls.auto says where certificates come from (docs/tls.md)")
		}
	}
}

// clientAuth notes that a site asks for certificates.
func (im *importer) clientAuth(b *block, d *draft.Directive) {
	mode := "required"
	files := []string{}
	var walk func(list []*draft.Directive)
	walk = func(list []*draft.Directive) {
		for _, e := range list {
			im.Used(e)
			switch e.Name {
			case "mode":
				mode = map[string]string{"require_and_verify": "required", "required": "required", "verify_if_given": "optional"}[e.Arg(0)]
			case "trusted_ca_cert_file", "pem_file":
				files = append(files, e.Args...)
			case "trust_pool":
				walk(e.Block)
				if e.Arg(0) != "file" {
					files = append(files, "", "")
				}
			default:
				files = append(files, "", "") // more than one file can say
			}
		}
	}
	walk(d.Block)
	b.Asks = &plan.Asks{Line: d, Mode: mode}
	if len(files) == 1 {
		b.Asks.File = im.path(files[0])
	}
}
