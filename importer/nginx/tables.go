package nginx

import (
	"slices"

	"millrace/importer/draft"
	"millrace/importer/nginxconf"
)

// fromTables is the outcome of a line that no translation has asked for.
func fromTables(d *nginxconf.Directive) draft.Note {
	name := d.Name.Text
	for _, r := range defaults() {
		if slices.Contains(r.names, name) {
			return draft.Note{Outcome: draft.Defaulted, Why: r.why}
		}
	}
	if len(d.Args) == 1 && d.Arg(0) == "off" && slices.Contains(offHere(), name) {
		return draft.Note{Outcome: draft.Defaulted, Why: "it is off here, too"}
	}
	for _, r := range missing() {
		if slices.Contains(r.names, name) {
			return draft.Note{Outcome: draft.Untranslated, Why: r.why}
		}
	}
	if d.Opens {
		return draft.Note{Outcome: draft.Untranslated, Why: "no counterpart is known to the importer: see docs/config.md for what there is"}
	}
	if other := meant(name); other != "" {
		return draft.Note{Outcome: draft.Untranslated, Why: "not known to the importer: is " + other + " meant? Nothing is done for it"}
	}
	return draft.Note{Outcome: draft.Untranslated, Why: "not known to the importer here: see docs/config.md for what there is"}
}

// offHere are directives of which nothing is done here unless a config says so: "off" is
// what they are. Of no other line that is said.
func offHere() []string {
	return []string{
		"auth_basic", "auth_jwt", "auth_request", "autoindex", "fancyindex", "autoindex_exact_size", "expires", "ssl", "ssl_verify_client", "ssl_reject_handshake", "modsecurity", "pagespeed",
		"mirror", "ssi", "sub_filter_last_modified", "image_filter", "concat", "perl", "userid", "proxy_cache", "fastcgi_cache", "proxy_store", "fastcgi_store", "proxy_bind", "recursive_error_pages",
		"stub_status", "vhost_traffic_status", "geoip_proxy", "status", "api", "mp4", "flv", "hls", "dav_methods", "create_full_put_path", "limit_rate", "proxy_limit_rate", "limit_conn", "limit_req", "lua_code_cache",
	}
}

// reason is what became of directives, and why.
type reason struct {
	why   string
	names []string
}

// defaults are directives that need no counterpart, by the reason.
func defaults() []reason {
	return []reason{
		{"the process looks after its threads, files and connections itself", []string{
			"worker_processes", "worker_connections", "worker_rlimit_nofile", "worker_cpu_affinity", "worker_priority", "events", "use", "multi_accept",
			"accept_mutex", "daemon", "master_process", "pid", "thread_pool", "aio", "pcre_jit", "timer_resolution", "worker_shutdown_timeout", "lock_file",
		}},
		{"the service manager says who it runs as (see docs/install.md)", []string{"user", "working_directory"}},
		{"modules are built in", []string{"load_module"}},
		{"files are sent without copies (sendfile) and in full packets", []string{"sendfile", "tcp_nopush", "tcp_nodelay", "sendfile_max_chunk", "directio", "output_buffers", "postpone_output", "read_ahead"}},
		{"files stay open and in memory as long as they do not change", []string{"open_file_cache", "open_file_cache_valid", "open_file_cache_min_uses", "open_file_cache_errors"}},
		{"br, zstd and gzip are built in and on for what shrinks: text, scripts, JSON, SVG", []string{
			"gzip", "gzip_vary", "gzip_proxied", "gzip_comp_level", "gzip_buffers", "gzip_http_version", "gzip_types", "gzip_min_length", "gzip_disable", "gunzip",
			"brotli", "brotli_comp_level", "brotli_types", "brotli_min_length", "brotli_buffers", "brotli_window", "zstd", "zstd_comp_level", "zstd_types", "zstd_min_length",
		}},
		{"files named like another with .br, .zst or .gz behind are sent for it", []string{"gzip_static", "brotli_static", "zstd_static"}},
		{"content types are built in, UTF-8 for text", []string{"default_type", "types", "types_hash_max_size", "types_hash_bucket_size", "charset", "charset_types", "source_charset"}},
		{"no location serves files by it", []string{"root", "alias", "index"}},
		{"tables size themselves", []string{"server_names_hash_bucket_size", "server_names_hash_max_size", "map_hash_bucket_size", "map_hash_max_size", "variables_hash_bucket_size", "variables_hash_max_size", "proxy_headers_hash_max_size", "proxy_headers_hash_bucket_size"}},
		{"no version is told to clients", []string{"server_tokens"}},
		{"modern TLS: forward secrecy, tickets and sessions are chosen by itself", []string{"ssl_ciphers", "ssl_prefer_server_ciphers", "ssl_session_cache", "ssl_session_timeout", "ssl_session_tickets", "ssl_ecdh_curve", "ssl_dhparam", "ssl_buffer_size", "ssl_conf_command", "ssl_early_data", "ssl_protocols"}},
		{"a staple is fetched for certificates that come by themselves (tls.auto)", []string{"ssl_stapling", "ssl_stapling_verify", "ssl_trusted_certificate", "resolver", "resolver_timeout", "ssl_stapling_file"}},
		{"HTTP/2 is always on over TLS", []string{"http2", "http2_max_concurrent_streams", "http2_push_preload", "http2_idle_timeout", "http2_recv_timeout"}},
		{"tls.http3 does it", []string{"http3", "quic_retry", "http3_hq", "quic_gso"}},
		{"limits are built in (limits in docs/config.md)", []string{"keepalive_requests", "large_client_header_buffers", "client_header_buffer_size", "client_body_buffer_size", "client_body_temp_path", "client_body_in_file_only", "reset_timedout_connection", "lingering_close", "lingering_time", "lingering_timeout", "keepalive_disable", "keepalive_time", "request_pool_size", "connection_pool_size", "send_lowat"}},
		{"the server's own messages go to the standard error; --log-level says which", []string{"error_log", "log_not_found", "log_subrequest", "limit_req_log_level", "limit_conn_log_level", "rewrite_log", "open_log_file_cache"}},
		{"the log's formats are combined, common and json", []string{"log_format"}},
		{"addresses stay as the client wrote them; a redirect to a folder is a relative one", []string{"server_name_in_redirect", "port_in_redirect", "absolute_redirect", "merge_slashes", "msie_padding"}},
		{"If-Modified-Since, ETag and ranges are built in", []string{"etag", "if_modified_since", "max_ranges"}},
		{"connections to upstreams are HTTP/1.1, kept, and upgraded when both sides want", []string{"proxy_http_version", "proxy_socket_keepalive", "grpc_socket_keepalive"}},
		{"bodies are buffered in memory, then in files (buffers in docs/config.md)", []string{
			"proxy_buffers", "proxy_buffer_size", "proxy_busy_buffers_size", "proxy_max_temp_file_size", "proxy_temp_file_write_size", "proxy_temp_path",
			"fastcgi_buffers", "fastcgi_buffer_size", "fastcgi_busy_buffers_size", "fastcgi_temp_path", "fastcgi_max_temp_file_size", "fastcgi_temp_file_write_size", "fastcgi_buffering", "fastcgi_request_buffering",
			"uwsgi_temp_path", "scgi_temp_path", "uwsgi_buffers", "uwsgi_buffer_size",
		}},
		{"the kept answers' bounds are memory, disk and disk_size of the cache", []string{"proxy_cache_min_uses", "proxy_cache_path"}},
		{"one request asks the upstream however many wait", []string{"proxy_cache_lock", "proxy_cache_lock_timeout", "proxy_cache_lock_age"}},
		{"expired answers are asked for again with their validators", []string{"proxy_cache_revalidate", "proxy_cache_background_update", "proxy_cache_methods", "proxy_cache_convert_head"}},
		{"Host, Range and conditions are handled by the cache", []string{"proxy_force_ranges", "slice"}},
		{"symbolic links are followed within the root (see docs/config.md, static)", []string{"disable_symlinks"}},
		{"upstreams share their state within the process, and names are looked up again by themselves", []string{"zone"}},
		{"of two servers at the first try the better one is taken, by latency and running requests", []string{"random"}},
		{"an application's own pages for errors are passed on: no error_page is there to take their place", []string{"fastcgi_intercept_errors", "proxy_intercept_errors", "grpc_intercept_errors", "uwsgi_intercept_errors", "scgi_intercept_errors"}},
		{"the parameters of PHP are built in", []string{"fastcgi_split_path_info", "fastcgi_keep_conn", "fastcgi_ignore_client_abort"}},
	}
}

// missing are directives that have no counterpart yet, by what to do.
func missing() []reason {
	return []reason{
		{"answers cannot be sent in the place of others' by a subrequest: do it in the application", []string{"mirror", "mirror_request_body", "addition_types", "add_before_body", "add_after_body"}},
		{"auth.copy lists the fields of the asked server's answer that the upstream gets, under the same names", []string{"auth_request_set"}},
		{"bodies are not changed on the way: do it in the application or when the site is built", []string{"sub_filter", "sub_filter_once", "sub_filter_types", "sub_filter_last_modified", "ssi", "ssi_types", "xslt_stylesheet", "image_filter", "image_filter_jpeg_quality", "image_filter_buffer", "concat", "pagespeed"}},
		{"pictures are resized by images (see docs/images.md)", []string{"image_filter_interlace", "image_filter_transparency"}},
		{"TCP and UDP streams are not passed on: keep nginx or HAProxy for them", []string{"stream", "mail", "preread_by_lua_block"}},
		{"no scripts run in the server: put it into the application", []string{"perl", "perl_set", "perl_modules", "js_import", "js_content", "js_set", "js_path", "lua_package_path", "lua_shared_dict", "content_by_lua_block", "content_by_lua_file", "set_by_lua_block", "header_filter_by_lua_block", "body_filter_by_lua_block", "init_by_lua_block", "init_worker_by_lua_block", "log_by_lua_block", "rewrite_by_lua_block", "rewrite_by_lua_file", "lua_code_cache", "lua_ssl_trusted_certificate"}},
		{"write a rule with an address for each network that gets another answer", []string{"geo"}},
		{"limits are for all sites: set it there (docs/config.md)", []string{"keepalive_timeout", "client_header_timeout", "client_body_timeout", "send_timeout"}},
		{"requests are in the log: no_log: true of a route keeps those for it out", []string{"access_log"}},
		{"write request_headers: {remove: […]} into the route for what its server must not get, or do not pass requests on there", []string{"proxy_pass_request_headers", "proxy_pass_request_body", "fastcgi_pass_request_headers", "fastcgi_pass_request_body", "uwsgi_pass_request_headers", "uwsgi_pass_request_body", "scgi_pass_request_headers", "scgi_pass_request_body", "grpc_pass_request_headers", "grpc_pass_request_body"}},
		{"whether a file is there decides within a route: write try there", []string{"try_files"}},
		{"countries are not known: let a CDN send one in a header, and write a rule on it", []string{"geoip_country", "geoip_city", "geoip2", "geoip_org", "geoip_proxy"}},
		{"requests are not split by chance: let the application or a cookie decide, with a rule on it", []string{"split_clients"}},
		{"metrics and health are on the admin listener (see docs/monitoring.md)", []string{"stub_status", "status", "vhost_traffic_status", "vhost_traffic_status_zone", "vhost_traffic_status_display", "vhost_traffic_status_display_format", "api"}},
		{"static has listing: true for it (HTML or JSON)", []string{"autoindex", "autoindex_exact_size", "autoindex_localtime", "autoindex_format", "fancyindex", "fancyindex_exact_size"}},
		{"video is not cut by seconds; ranges of bytes are served", []string{"mp4", "flv", "mp4_buffer_size", "mp4_max_buffer_size", "hls"}},
		{"files are not written by clients (WebDAV): use another server for it", []string{"dav_methods", "dav_access", "dav_ext_methods", "create_full_put_path", "min_delete_depth"}},
		{"the speed of single answers is not limited", []string{"limit_rate", "limit_rate_after", "proxy_limit_rate"}},
		{"limits.connections_per_address bounds connections, for all sites", []string{"limit_conn", "limit_conn_zone", "limit_conn_status", "limit_conn_dry_run"}},
		{"rate_limit limits how often a client may ask (docs/protection.md)", []string{"limit_req", "limit_req_zone", "limit_req_status", "limit_req_dry_run"}},
		{"write it into headers of the site or the route (docs/routes.md)", []string{"add_header", "more_set_headers", "more_clear_headers", "add_trailer", "proxy_hide_header", "proxy_pass_header", "fastcgi_hide_header", "fastcgi_pass_header", "more_clear_input_headers"}},
		{"answers of PHP are not kept: put a cache route before a server of its own, or cache in PHP", []string{"fastcgi_cache", "fastcgi_cache_path", "fastcgi_cache_valid", "fastcgi_cache_key", "fastcgi_cache_bypass", "fastcgi_no_cache", "fastcgi_cache_use_stale", "fastcgi_cache_lock", "fastcgi_ignore_headers", "fastcgi_cache_min_uses", "fastcgi_cache_methods", "fastcgi_cache_background_update", "fastcgi_cache_revalidate"}},
		{"purge with millrace cache purge, or over the admin listener", []string{"proxy_cache_purge"}},
		{"Referer is not judged by a list: a rule on the header does it", []string{"valid_referers", "referer_hash_max_size"}},
		{"cookies of users are not made here: do it in the application", []string{"userid", "userid_name", "userid_domain", "userid_path", "userid_expires", "userid_p3p"}},
		{"the name of a variable or the order of phases decides here: write it as rules", []string{"set", "if", "rewrite", "break", "uninitialized_variable_warn"}},
	}
}
