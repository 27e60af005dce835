package nginx

import (
	"millrace/importer/draft"
)

// otherwise is the outcome of a line that no translation has asked for.
func otherwise(d *draft.Directive) draft.Note {
	unknown := "not known to the importer here: see docs/config.md for what there is"
	if other := meant(d.Name); d.Opens {
		unknown = "no counterpart is known to the importer: see docs/config.md for what there is"
	} else if other != "" {
		unknown = "not known to the importer: is " + other + " meant? Nothing is done for it"
	}
	return draft.Tables{Defaults: defaults(), Off: offHere(), Missing: missing()}.Note(d, d.Name, unknown)
}

// offHere are directives of which nothing is done here unless a config says so: "off" is
// what they are. Of no other line that is said.
func offHere() string {
	return `auth_basic auth_jwt auth_request autoindex fancyindex autoindex_exact_size expires ssl ssl_verify_client ssl_reject_handshake modsecurity pagespeed mirror ssi sub_filter_last_modified image_filter concat perl userid proxy_cache fastcgi_cache proxy_store fastcgi_store proxy_bind recursive_error_pages stub_status vhost_traffic_status geoip_proxy status api mp4 flv hls dav_methods create_full_put_path limit_rate proxy_limit_rate limit_conn limit_req lua_code_cache`
}

// defaults are directives that need no counterpart, by the reason.
func defaults() []draft.Reason {
	return []draft.Reason{
		{Why: "the process looks after its threads, files and connections itself", Names: "worker_processes worker_connections worker_rlimit_nofile worker_cpu_affinity worker_priority events use multi_accept accept_mutex daemon master_process pid thread_pool aio pcre_jit timer_resolution worker_shutdown_timeout lock_file"},
		{Why: "the service manager says who it runs as (see docs/install.md)", Names: "user working_directory"},
		{Why: "modules are built in", Names: "load_module"},
		{Why: "files are sent without copies (sendfile) and in full packets", Names: "sendfile tcp_nopush tcp_nodelay sendfile_max_chunk directio output_buffers postpone_output read_ahead"},
		{Why: "files stay open and in memory as long as they do not change", Names: "open_file_cache open_file_cache_valid open_file_cache_min_uses open_file_cache_errors"},
		{Why: "br, zstd and gzip are built in and on for what shrinks: text, scripts, JSON, SVG", Names: "gzip gzip_vary gzip_proxied gzip_comp_level gzip_buffers gzip_http_version gzip_types gzip_min_length gzip_disable gunzip brotli brotli_comp_level brotli_types brotli_min_length brotli_buffers brotli_window zstd zstd_comp_level zstd_types zstd_min_length"},
		{Why: "files named like another with .br, .zst or .gz behind are sent for it", Names: "gzip_static brotli_static zstd_static"},
		{Why: "content types are built in, UTF-8 for text", Names: "default_type types types_hash_max_size types_hash_bucket_size charset charset_types source_charset"},
		{Why: "no location serves files by it", Names: "root alias index"},
		{Why: "tables size themselves", Names: "server_names_hash_bucket_size server_names_hash_max_size map_hash_bucket_size map_hash_max_size variables_hash_bucket_size variables_hash_max_size proxy_headers_hash_max_size proxy_headers_hash_bucket_size"},
		{Why: "no version is told to clients", Names: "server_tokens"},
		{Why: "modern TLS: forward secrecy, tickets and sessions are chosen by itself", Names: "ssl_ciphers ssl_prefer_server_ciphers ssl_session_cache ssl_session_timeout ssl_session_tickets ssl_ecdh_curve ssl_dhparam ssl_buffer_size ssl_conf_command ssl_early_data ssl_protocols"},
		{Why: "a staple is fetched for certificates that come by themselves (tls.auto)", Names: "ssl_stapling ssl_stapling_verify ssl_trusted_certificate resolver resolver_timeout ssl_stapling_file"},
		{Why: "HTTP/2 is always on over TLS", Names: "http2 http2_max_concurrent_streams http2_push_preload http2_idle_timeout http2_recv_timeout"},
		{Why: "tls.http3 does it", Names: "http3 quic_retry http3_hq quic_gso"},
		{Why: "limits are built in (limits in docs/config.md)", Names: "keepalive_requests large_client_header_buffers client_header_buffer_size client_body_buffer_size client_body_temp_path client_body_in_file_only reset_timedout_connection lingering_close lingering_time lingering_timeout keepalive_disable keepalive_time request_pool_size connection_pool_size send_lowat"},
		{Why: "the server's own messages go to the standard error; --log-level says which", Names: "error_log log_not_found log_subrequest limit_req_log_level limit_conn_log_level rewrite_log open_log_file_cache"},
		{Why: "the log's formats are combined, common and json", Names: "log_format"},
		{Why: "addresses stay as the client wrote them; a redirect to a folder is a relative one", Names: "server_name_in_redirect port_in_redirect absolute_redirect merge_slashes msie_padding"},
		{Why: "If-Modified-Since, ETag and ranges are built in", Names: "etag if_modified_since max_ranges"},
		{Why: "connections to upstreams are HTTP/1.1, kept, and upgraded when both sides want", Names: "proxy_http_version proxy_socket_keepalive grpc_socket_keepalive"},
		{Why: "bodies are buffered in memory, then in files (buffers in docs/config.md)", Names: "proxy_buffers proxy_buffer_size proxy_busy_buffers_size proxy_max_temp_file_size proxy_temp_file_write_size proxy_temp_path fastcgi_buffers fastcgi_buffer_size fastcgi_busy_buffers_size fastcgi_temp_path fastcgi_max_temp_file_size fastcgi_temp_file_write_size fastcgi_buffering fastcgi_request_buffering uwsgi_temp_path scgi_temp_path uwsgi_buffers uwsgi_buffer_size"},
		{Why: "the kept answers' bounds are memory, disk and disk_size of the cache", Names: "proxy_cache_min_uses proxy_cache_path"},
		{Why: "one request asks the upstream however many wait", Names: "proxy_cache_lock proxy_cache_lock_timeout proxy_cache_lock_age"},
		{Why: "expired answers are asked for again with their validators", Names: "proxy_cache_revalidate proxy_cache_background_update proxy_cache_methods proxy_cache_convert_head"},
		{Why: "Host, Range and conditions are handled by the cache", Names: "proxy_force_ranges slice"},
		{Why: "symbolic links are followed within the root (see docs/config.md, static)", Names: "disable_symlinks"},
		{Why: "upstreams share their state within the process, and names are looked up again by themselves", Names: "zone"},
		{Why: "of two servers at the first try the better one is taken, by latency and running requests", Names: "random"},
		{Why: "an application's own pages for errors are passed on: no error_page is there to take their place", Names: "fastcgi_intercept_errors proxy_intercept_errors grpc_intercept_errors uwsgi_intercept_errors scgi_intercept_errors"},
		{Why: "the parameters of PHP are built in", Names: "fastcgi_split_path_info fastcgi_keep_conn fastcgi_ignore_client_abort"},
	}
}

// missing are directives that have no counterpart yet, by what to do.
func missing() []draft.Reason {
	return []draft.Reason{
		{Why: "answers cannot be sent in the place of others' by a subrequest: do it in the application", Names: "mirror mirror_request_body addition_types add_before_body add_after_body"},
		{Why: "auth.copy lists the fields of the asked server's answer that the upstream gets, under the same names", Names: "auth_request_set"},
		{Why: "bodies are not changed on the way: do it in the application or when the site is built", Names: "sub_filter sub_filter_once sub_filter_types sub_filter_last_modified ssi ssi_types xslt_stylesheet image_filter image_filter_jpeg_quality image_filter_buffer concat pagespeed"},
		{Why: "pictures are resized by images (see docs/images.md)", Names: "image_filter_interlace image_filter_transparency"},
		{Why: "TCP and UDP streams are not passed on: keep nginx or HAProxy for them", Names: "stream mail preread_by_lua_block"},
		{Why: "no scripts run in the server: put it into the application", Names: "perl perl_set perl_modules js_import js_content js_set js_path lua_package_path lua_shared_dict content_by_lua_block content_by_lua_file set_by_lua_block header_filter_by_lua_block body_filter_by_lua_block init_by_lua_block init_worker_by_lua_block log_by_lua_block rewrite_by_lua_block rewrite_by_lua_file lua_code_cache lua_ssl_trusted_certificate"},
		{Why: "write a rule with an address for each network that gets another answer", Names: "geo"},
		{Why: "limits are for all sites: set it there (docs/config.md)", Names: "keepalive_timeout client_header_timeout client_body_timeout send_timeout"},
		{Why: "requests are in the log: no_log: true of a route keeps those for it out", Names: "access_log"},
		{Why: "write request_headers: {remove: […]} into the route for what its server must not get, or do not pass requests on there", Names: "proxy_pass_request_headers proxy_pass_request_body fastcgi_pass_request_headers fastcgi_pass_request_body uwsgi_pass_request_headers uwsgi_pass_request_body scgi_pass_request_headers scgi_pass_request_body grpc_pass_request_headers grpc_pass_request_body"},
		{Why: "whether a file is there decides within a route: write try there", Names: "try_files"},
		{Why: "countries are not known: let a CDN send one in a header, and write a rule on it", Names: "geoip_country geoip_city geoip2 geoip_org geoip_proxy"},
		{Why: "requests are not split by chance: let the application or a cookie decide, with a rule on it", Names: "split_clients"},
		{Why: "metrics and health are on the admin listener (see docs/monitoring.md)", Names: "stub_status status vhost_traffic_status vhost_traffic_status_zone vhost_traffic_status_display vhost_traffic_status_display_format api"},
		{Why: "static has listing: true for it (HTML or JSON)", Names: "autoindex autoindex_exact_size autoindex_localtime autoindex_format fancyindex fancyindex_exact_size"},
		{Why: "video is not cut by seconds; ranges of bytes are served", Names: "mp4 flv mp4_buffer_size mp4_max_buffer_size hls"},
		{Why: "files are not written by clients (WebDAV): use another server for it", Names: "dav_methods dav_access dav_ext_methods create_full_put_path min_delete_depth"},
		{Why: "the speed of single answers is not limited", Names: "limit_rate limit_rate_after proxy_limit_rate"},
		{Why: "limits.connections_per_address bounds connections, for all sites", Names: "limit_conn limit_conn_zone limit_conn_status limit_conn_dry_run"},
		{Why: "rate_limit limits how often a client may ask (docs/protection.md)", Names: "limit_req limit_req_zone limit_req_status limit_req_dry_run"},
		{Why: "write it into headers of the site or the route (docs/routes.md)", Names: "add_header more_set_headers more_clear_headers add_trailer proxy_hide_header proxy_pass_header fastcgi_hide_header fastcgi_pass_header more_clear_input_headers"},
		{Why: "answers of PHP are not kept: put a cache route before a server of its own, or cache in PHP", Names: "fastcgi_cache fastcgi_cache_path fastcgi_cache_valid fastcgi_cache_key fastcgi_cache_bypass fastcgi_no_cache fastcgi_cache_use_stale fastcgi_cache_lock fastcgi_ignore_headers fastcgi_cache_min_uses fastcgi_cache_methods fastcgi_cache_background_update fastcgi_cache_revalidate"},
		{Why: "purge with millrace cache purge, or over the admin listener", Names: "proxy_cache_purge"},
		{Why: "Referer is not judged by a list: a rule on the header does it", Names: "valid_referers referer_hash_max_size"},
		{Why: "cookies of users are not made here: do it in the application", Names: "userid userid_name userid_domain userid_path userid_expires userid_p3p"},
		{Why: "the name of a variable or the order of phases decides here: write it as rules", Names: "set if rewrite break uninitialized_variable_warn"},
	}
}
