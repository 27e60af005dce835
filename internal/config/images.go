package config

import "millrace/store/s3"

// images checks that a route's images have one place to come from.
func (c *checker) images(path string, r Route) {
	o := r.Images
	static := r.Static != nil || c.doc.unread[join(path, "static")]
	remote := o.Remote != nil || c.doc.unread[join(path, "images.remote")]
	switch {
	case static && remote:
		c.key(join(path, "images.remote"), "the originals are in a folder and on another host", "keep static or images.remote")
	case !static && !remote:
		c.key(join(path, "images"), "images of what? There is no folder beside it, and no other host", "add static: {root: ./photos}, or images: {remote: {from: https://pictures.example.org}}")
	}
	if o.Shared != "" {
		if err := (s3.Options{URL: o.Shared}).Check(); err != nil {
			c.value(join(path, "images.shared"), err.Error(), "for example s3://s3.example.org/bucket/site")
		}
	}
}
