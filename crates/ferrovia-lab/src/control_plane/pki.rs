//! The certificates of a control plane: an authority and the certificates it signs.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType,
};

/// The default validity of certificates.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Tolerance for clocks that jump back.
const BEFORE_NOW: Duration = Duration::from_secs(3600);

/// A certificate authority.
#[derive(Debug)]
pub struct Pki {
    authority: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Pki {
    /// Creates an authority.
    ///
    /// # Errors
    /// If no key can be created.
    pub fn new() -> Result<Self, Error> {
        let mut params = valid_for(A_DAY)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { authority })
    }

    /// The authority's certificate as PEM.
    pub fn authority(&self) -> String {
        self.authority.pem()
    }

    /// Signs a server at these addresses.
    ///
    /// # Errors
    /// If no key can be created.
    pub fn server(&self, addresses: &[IpAddr]) -> Result<Identity, Error> {
        let mut params = valid_for(A_DAY)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        params.subject_alt_names = addresses.iter().copied().map(SanType::IpAddress).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// Signs a client. Kubernetes takes the common name as user and the organization as group.
    ///
    /// # Errors
    /// If no key can be created.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Identity, Error> {
        self.client_for(user, group, A_DAY)
    }

    /// Like [`Self::client`], with another validity.
    ///
    /// # Errors
    /// If no key can be created.
    pub fn client_for(
        &self,
        user: &str,
        group: Option<&str>,
        valid: Duration,
    ) -> Result<Identity, Error> {
        let mut params = valid_for(valid)?;
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Identity, Error> {
        let key = KeyPair::generate()?;
        Ok(Identity {
            certificate: params.signed_by(&key, &self.authority)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn valid_for(time: Duration) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(vec![])?;
    let now = SystemTime::now();
    params.not_before = (now - BEFORE_NOW).into();
    params.not_after = (now + time).into();
    Ok(params)
}
