//go:build !single || gin

package main

import (
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// ginServer serves the site with Gin's StaticFS in release mode and without its log. The
// JSON method is a middleware: Gin's router allows no route beside StaticFS at the top,
// which is a catch-all.
func ginServer(o options) (func(net.Listener) error, error) {
	files, v, err := o.siteFiles()
	if err != nil {
		return nil, err
	}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(func(c *gin.Context) {
		if c.Request.URL.Path == verifyPath {
			c.AbortWithStatusJSON(http.StatusOK, v)
		}
	})
	engine.StaticFS("/", files)
	return serveHTTP(engine), nil
}
