# Plugin of pt-online-schema-change for Headgate's strategy pt-osc (pt_osc.py starts the program with it).
#
# HEADGATE_TOOL_FILE names a file (JSON) that says whose run this is, and where to report by which token. Each session
# that the program writes with first holds a lock that is named after the migration, by which its owner can end it, and then
# looks whether the migration is still this run's. Both again whenever the program connects anew, and before it renames.

package pt_online_schema_change_plugin;

use strict;
use warnings FATAL => 'all';

use HTTP::Tiny;
use JSON::PP;

# How long a report may take: the copy waits for it.
use constant REPORT_SECONDS => 5;

# How long a session that has just been lost may hold its lock.
use constant LOCK_SECONDS => 10;

my $told;

sub new {
   my ($class, %args) = @_;
   my $self = bless { cxn => $args{cxn} }, $class;
   $told = _read($ENV{HEADGATE_TOOL_FILE});
   my $cxn = $self->{cxn};
   die "this version of the program connects in a way that is not known here\n" unless exists $cxn->{set};
   my $set = $cxn->{set};
   $cxn->{set} = sub {
      my ($dbh) = @_;
      $set->($dbh) if $set;
      _claim($dbh);
   };
   _claim($cxn->dbh());
   return $self;
}

sub init                    { _report('running', 'examining') }
sub before_create_new_table { _report('running', 'making the copy') }
sub before_create_triggers  { _report('running', 'making triggers') }
sub before_copy_rows        { _report('running', 'copying') }
sub after_copy_rows         { _report('running', 'copied') }
sub after_swap_tables       { _report('running', 'renamed') }

sub before_swap_tables {
   my ($self) = @_;
   my $dbh = $self->{cxn}->dbh();
   _check($dbh);
   (my $name = "$told->{schema}/$told->{table}") =~ s/\$/\@0024/g;
   my ($numbers) = $dbh->selectrow_array(
      'SELECT GROUP_CONCAT(table_id ORDER BY table_id) FROM information_schema.innodb_sys_tables '
      . 'WHERE BINARY SUBSTRING_INDEX(name, ?, 1) = ?', undef,
      '#', $name);
   die "the table was truncated or rebuilt while it was copied: retry the migration\n"
      unless defined $numbers && $numbers eq $told->{numbers};
   _report('running', 'renaming');
   return;
}

sub before_exit {
   my ($self, %args) = @_;
   _report('complete', '') unless $args{exit_status};
   return;
}

END {
   my $code = $?;
   _report('failed', '', "exit code $code") if $told && $code;
   $? = $code;
}

# The lock is the session's, and ends with it.
sub _claim {
   my ($dbh) = @_;
   my ($got) = $dbh->selectrow_array('SELECT GET_LOCK(?, ?)', undef, $told->{lock}, LOCK_SECONDS);
   die "another session works on migration $told->{migration}\n" unless $got;
   _check($dbh);
   return;
}

sub _check {
   my ($dbh) = @_;
   my ($mine) = $dbh->selectrow_array(
      q{SELECT COUNT(*) FROM headgate.migration WHERE id = ? AND owner_rev = ? AND attempt = ? AND stage = 'begun'},
      undef, $told->{row}, $told->{owner_rev}, $told->{attempt});
   die "migration $told->{migration} is not this run's any more\n" unless $mine;
   return;
}

# A report that nobody takes is no reason to end: the process and the database are looked at as well.
sub _report {
   my ($status, $hint, $message) = @_;
   my $http = HTTP::Tiny->new(timeout => REPORT_SECONDS, http_proxy => undef, https_proxy => undef, all_proxy => undef);
   my %given = (uuid => $told->{migration}, status => $status);
   $given{hint} = $hint if $hint;
   $given{message} = $message if defined $message;
   my $answer = $http->request('POST', "$told->{url}?" . $http->www_form_urlencode(\%given),
      { headers => { Authorization => "Bearer $told->{token}" } });
   print STDERR "report ($status) was not taken: $answer->{status}\n" unless $answer->{success};
   return;
}

sub _read {
   my ($path) = @_;
   open my $file, '<:raw', $path or die "cannot read HEADGATE_TOOL_FILE: $!\n";
   local $/;
   my $text = <$file>;
   close $file;
   return JSON::PP::decode_json($text);
}

1;
