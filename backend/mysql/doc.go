// Package mysql keeps the queue in five tables of a MySQL-compatible database:
// MySQL 8, MariaDB 10.6 and later, or Vitess over either.
package mysql
