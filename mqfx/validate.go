package mqfx

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
)

// validate checks an effective configuration and returns everything that is
// wrong with it, each a [backend.FieldError] under its full key.
func (c Config) validate() error {
	errs := []error{
		oneOf("mq.backend", c.Backend, BackendMySQL, BackendMemory),
		inRange("mq.pool.max_open", c.Pool.MaxOpen, MinMaxOpen, MaxMaxOpen),
		inRange("mq.pool.max_lifetime", c.Pool.MaxLifetime, MinMaxLifetime, MaxMaxLifetime),
		inRange("mq.publish.max_payload", c.Publish.MaxPayload, 1, mysql.MaxMaxPayload),
		inRange("mq.publish.max_metadata", c.Publish.MaxMetadata, 2, mysql.MaxMaxMetadata),
		inRange("mq.publish.max_batch_rows", c.Publish.MaxBatchRows, 1, mysql.MaxMaxBatchRows),
		inRange("mq.publish.max_batch_bytes", c.Publish.MaxBatchBytes, mysql.MinMaxBatchBytes, mysql.MaxMaxBatchBytes),
		inRange("mq.publish.timeout", c.Publish.Timeout, mysql.MinPublishTimeout, mysql.MaxPublishTimeout),
		inRange("mq.group_retention", c.GroupRetention, mysql.MinGroupRetention, mysql.MaxGroupRetention),
		inRange("mq.drain_timeout", c.DrainTimeout, backend.MinDuration, MaxDrainTimeout),
		oneOf("mq.log.level", c.Log.Level,
			zapcore.DebugLevel.String(), zapcore.InfoLevel.String(), zapcore.WarnLevel.String(), zapcore.ErrorLevel.String()),
		oneOf("mq.log.format", c.Log.Format, "json", "console"),
		c.Subscription.validate("mq.subscription", "topic"),
	}
	if c.Migrate && c.ExternalSchema {
		errs = append(errs, &backend.FieldError{
			Field: "mq.migrate", Value: "true", Rule: "mq.external_schema says that another tool makes the tables; leave one of them out",
		})
	}
	for _, topic := range slices.Sorted(maps.Keys(c.Topics)) {
		errs = append(errs, c.Topics[topic].validate("mq.topics."+topic, topic))
	}
	return errors.Join(errs...)
}

// validate leaves the rules to the backend and translates the names of its
// fields into keys.
func (s Subscription) validate(key, topic string) error {
	settings, err := s.settings()
	if err == nil {
		settings.Group = "group" // the handler's, checked with it
		err = settings.Validate(topic)
	}
	if field, ok := errors.AsType[*backend.FieldError](err); ok {
		renamed := *field
		renamed.Field = subscriptionKey(key, field.Field)
		return &renamed
	}
	return err
}

func subscriptionKey(key, field string) string {
	if tenant, ok := strings.CutPrefix(field, "tenant weight of "); ok {
		return key + ".tenant_weights." + strings.Trim(tenant, `"`)
	}
	if field == "topic" {
		return key
	}
	for _, group := range []string{"retry", "dead letter"} {
		if rest, ok := strings.CutPrefix(field, group+" "); ok {
			key, field = key+"."+strings.ReplaceAll(group, " ", "_"), rest
		}
	}
	return key + "." + strings.ReplaceAll(field, " ", "_")
}

func oneOf(key, value string, names ...string) error {
	if slices.Contains(names, value) {
		return nil
	}
	return &backend.FieldError{Field: key, Value: fmt.Sprintf("%.40q", value), Rule: fmt.Sprintf("want one of %q", names)}
}

func inRange[T int | time.Duration](key string, v, low, high T) error {
	if v >= low && v <= high {
		return nil
	}
	return &backend.FieldError{Field: key, Value: fmt.Sprint(v), Rule: fmt.Sprintf("want %v to %v", low, high)}
}
