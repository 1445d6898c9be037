// Package tcp is what the system tells and does of a TCP connection beside what package net has. Where a system has no
// such thing it does nothing.
package tcp
