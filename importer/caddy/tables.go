package caddy

import (
	"maps"

	"millrace/importer/draft"
)

// reported reports whether a table has a line that stands in a block of some kind, and marks it
// as that says.
func (im *importer) reported(in string, d *draft.Directive) bool {
	note := tables()[in].Note(d, d.Name, "")
	if note.Why != "" {
		im.Whole(d, note.Outcome, note.Why)
	}
	return note.Why != ""
}

// pagesOfErrors is what takes the place of looking at the statuses of upstreams.
const pagesOfErrors = "errors has pages for an upstream's statuses (docs/routes.md)"

// tables are the lines that no translation asks for, by the block that they stand in.
func tables() map[string]draft.Tables {
	all := settings()
	maps.Copy(all, jobs())
	return all
}

// jobs are the tables of sites, and of what answers in them.
func jobs() map[string]draft.Tables {
	return map[string]draft.Tables{
		"site": {
			Defaults: []draft.Reason{
				{Why: "br, zstd and gzip are on", Names: "encode"},
				{Why: "there is one access log for all sites: log", Names: "log"},
				{Why: "see the top of this config", Names: "tls bind"},
			},
			Missing: []draft.Reason{
				{Why: "variables are tables here: see docs/routes.md", Names: "vars map"},
				{Why: "pages are sent as they are: make them when the site is built", Names: "templates"},
				{Why: "write rate_limit of the site or route, as in 10/s (docs/protection.md)", Names: "rate_limit"},
				{Why: "write the route as cache instead of proxy (docs/cache.md)", Names: "cache"},
				{Why: "php: with php-fpm's socket beside static (docs/php.md)", Names: "php_server php"},
				{Why: "websocket: channels does it (docs/websocket.md)", Names: "mercure"},
				{Why: pagesOfErrors, Names: "intercept"},
				{Why: "it has no counterpart", Names: "tracing log_append log_name push fs copy_response copy_response_headers webdav cgi exec vulcain frankenphp"},
			},
		},
		"guard": {Missing: []draft.Reason{ // they may keep clients out
			{Why: "a named route: write it at the places that name it", Names: "invoke"},
			{Why: "it may keep clients out: write access or auth (docs/protection.md)", Names: "authorize authenticate authp jwt jwtauth crowdsec appsec coraza_waf ipfilter geoip maxmind_geolocation security"},
		}},
		"respond": {Defaults: []draft.Reason{{Why: "connections are kept", Names: "close"}}},
		"header": {
			Defaults: []draft.Reason{{Why: "rules hold for the answer as the job gave it", Names: "defer"}},
			Missing:  []draft.Reason{{Why: "write it as headers.when, by status and type", Names: "match"}},
		},
		"file_server": {
			Defaults: []draft.Reason{{Why: "files compressed beforehand are found beside", Names: "precompressed"}},
			Missing: []draft.Reason{
				{Why: "a folder's path without its slash leads to the one with it", Names: "disable_canonical_uris"},
				{Why: "a status for all files: write errors, or respond with a file", Names: "status"},
				{Why: "what follows a missing file is static.try: ['{path}', '@name']", Names: "pass_thru"},
			},
		},
		"php_fastcgi": {
			Defaults: []draft.Reason{{Why: "php takes paths apart, follows the root's links and logs what scripts say by itself", Names: "split resolve_root_symlink capture_stderr write_timeout"}},
			Missing:  []draft.Reason{{Why: "php looks for files, then folders, then php.front", Names: "try_files"}},
		},
		"reverse_proxy": {
			Defaults: []draft.Reason{
				{Why: "bodies are buffered, streams are closed at a reload only when their route has changed, and what is safe to be sent again is", Names: "buffer_requests buffer_responses max_buffer_size request_buffers response_buffers verbose_logs stream_timeout stream_close_delay replace_status lb_retry_match"},
				{Why: "failed requests are tried again at once by another server, and servers that fail are left out: see docs/proxy.md", Names: "unhealthy_status unhealthy_latency lb_try_duration lb_try_interval health_port health_headers health_follow_redirects health_method health_request_body health_upstream"},
			},
			Missing: []draft.Reason{
				{Why: pagesOfErrors, Names: "handle_response copy_response copy_response_headers @*"},
				{Why: "list the servers in proxy.to", Names: "dynamic"},
				{Why: "the method stays, and paths are changed by proxy.rewrite", Names: "method rewrite"},
			},
		},
		"transport": {
			Defaults: []draft.Reason{{Why: "buffers and connections to upstreams have bounds of their own", Names: "read_buffer write_buffer max_response_header compression dial_fallback_delay expect_continue_timeout resolvers tls_timeout keepalive_interval tls_renegotiation tls_except_ports tls_curves"}},
			Missing:  []draft.Reason{{Why: "connections to upstreams go straight there", Names: "local_address network_proxy forward_proxy_url proxy_protocol"}},
		},
	}
}

// settings are the tables of what holds for all sites.
func settings() map[string]draft.Tables {
	return map[string]draft.Tables{
		"global": {
			Defaults: []draft.Reason{
				{Why: "the server's own messages go to the standard error", Names: "log"},
				{Why: "certificates are renewed in time, metrics are on the admin listener, and nothing is installed into the system's trust unasked", Names: "debug skip_install_trust persist_config renew_interval ocsp_stapling ocsp_interval storage_clean_interval storage_check cert_lifetime key_type preferred_chains metrics default_sni fallback_sni"},
			},
			Missing: []draft.Reason{
				{Why: "tls.auto.dns names a program that puts TXT records into the DNS (docs/tls.md)", Names: "acme_dns"},
				{Why: "tls.auto.storage names the folder, the Redis or the bucket: certificates are made anew (docs/tls.md)", Names: "storage"},
				{Why: "the order of answers is that of the rules below: look at them", Names: "order"},
				{Why: "write the address into listen and tls.listen", Names: "default_bind"},
				{Why: "tls.auto.ca says who issues certificates (docs/tls.md)", Names: "cert_issuer pki"},
			},
		},
		"on_demand_tls": {Defaults: []draft.Reason{{Why: "certificates on demand have bounds of their own", Names: "interval burst"}}},
		"servers": {
			Defaults: []draft.Reason{
				{Why: "of a list of addresses, the last that is no trusted proxy counts", Names: "trusted_proxies_strict"},
				{Why: "listeners have bounds of their own: limits", Names: "metrics trace enable_full_duplex log_credentials strict_sni_host keepalive_interval 0rtt name"},
			},
			Missing: []draft.Reason{{Why: "proxy_protocol: {from: [the balancer's address]} is that of load balancers (docs/config.md)", Names: "listener_wrappers"}},
		},
		"tls": {
			Defaults: []draft.Reason{{Why: "suites with forward secrecy alone, HTTP/2 and HTTP/3 are built in", Names: "ciphers curves alpn key_type reuse_private_keys renewal_window_ratio insecure_secrets_log"}},
			Missing:  []draft.Reason{{Why: "tls.auto.dns names a program that puts TXT records into the DNS (docs/tls.md)", Names: "dns"}},
		},
	}
}
